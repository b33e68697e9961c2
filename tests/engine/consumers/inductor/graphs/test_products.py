"""Products of a callable as torch traces it, cut where the model's own code depends on m."""

from __future__ import annotations

import pytest

from gemmtune.engine.consumers.inductor.graphs.products import TracedProduct, asked_by_torch, dynamic_inputs, trace
from gemmtune.engine.records.errors import UsageError

torch = pytest.importorskip("torch", reason="torch is not installed")

pytestmark = [pytest.mark.slow(5), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(64, 32, bias=False)

    def forward(self, x):
        return self.linear(x) if x.shape[0] < 8 else self.linear(x) * 2


def test_a_graph_is_traced_for_each_range_of_m():
    small, large = trace(Layer(), *dynamic_inputs(["bf16[m:1..4096,64]"]), grad=False)
    assert ((small.first, small.last), (large.first, large.last)) == ((2, 7), (8, None))
    assert small.guards == ("m < 8",)
    [product] = small.products
    assert product == TracedProduct("forward", "mm", "m", "64", "32", "nt")
    assert str(product) == "forward mm(m×64, 64×32)"
    assert (product.product.m, product.product.k, product.product.n) == (None, 64, 32)


FACTORS = dynamic_inputs(["fp32[size:1..64,64]", "fp32[64,32]"])


def test_gradients_add_the_products_of_the_backward_pass():
    [traced] = trace(lambda x, w: torch.nn.functional.relu(x @ w), *FACTORS, grad=True)
    assert [str(each) for each in traced.products] == [
        "forward mm(m×64, 64×32)",
        "backward mm(64×m, m×32)",
        "backward mm(m×32, 32×64)",
    ]
    assert [each.layout for each in traced.products] == ["nn", "tn", "nt"]
    [alone] = trace(lambda x, w: x @ w, *FACTORS, grad=False)
    assert [each.role for each in alone.products] == ["forward"]


@pytest.mark.parametrize(
    ("product", "known"),
    [
        (TracedProduct("forward", "mm", "m", "64", "32", "nt"), True),
        (TracedProduct("forward", "addmm", "64", "m", "32", "nt"), True),
        (TracedProduct("forward", "bmm", "m", "64", "32", "nt"), False),
        (TracedProduct("forward", "mm", "16", "64", "32", "nt"), False),
        (TracedProduct("forward", "mm", "m", "m", "32", "nt"), False),
        (TracedProduct("forward", "mm", "2·m", "64", "m", "nt"), False),
    ],
)
def test_a_product_with_one_dynamic_size_has_known_guards(product, known):
    assert (product.product is not None) is known


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: x @ x, "the callable failed on inputs with m=2 on the meta device"),
        (lambda x: 3, "torch compiled no graph of the callable with m=2"),
    ],
)
def test_a_callable_that_cannot_be_traced_is_refused(call, message):
    with pytest.raises(UsageError, match=message):
        trace(call, *dynamic_inputs(["bf16[m:1..4096,64]"]), grad=False)


def test_the_guards_of_another_torch_are_not_known():
    product = TracedProduct("forward", "mm", "m", "64", "32", "nt").product
    with pytest.raises(UsageError, match=r"the guards of torch 1.2.0 are not known without it"):
        next(asked_by_torch(product, "1.2.0", 16))
