"""Training steps: blocks that are computed again for the gradients, and the order in which gradients are added."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from unittest.mock import patch

import pytest

import gemmtune as gt

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from functorch.compile import make_boxed_func  # noqa: E402 (torch is there)
from torch._dynamo.backends.common import aot_autograd  # noqa: E402 (torch is there)
from torch.nn.functional import dropout, scaled_dot_product_attention  # noqa: E402 (torch is there)
from torch.utils._pytree import tree_leaves  # noqa: E402 (torch is there)
from torch.utils.checkpoint import checkpoint  # noqa: E402 (torch is there)

from gemmtune.engine.consumers.inductor.capture import gradients  # noqa: E402 (as above)
from gemmtune.engine.toolchain.releases import release_of  # noqa: E402 (as above)

pytestmark = [pytest.mark.slow(30), pytest.mark.filterwarnings("ignore:::torch")]  # torch warns of itself


class Checkpointed(torch.nn.Module):
    """Attention between two layers, in a block that is computed again."""

    def __init__(self, *, is_reentrant=False, of_attention=0.0, of_output=0.0):
        super().__init__()
        self.is_reentrant, self.of_attention, self.of_output = is_reentrant, of_attention, of_output
        self.qkv, self.out = (torch.nn.Linear(64, width, dtype=torch.bfloat16) for width in (192, 64))

    def block(self, x):
        q, k, v = self.qkv(x).view(2, 16, 3, 4, 16).permute(2, 0, 3, 1, 4)
        y = scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.of_attention)
        return x + dropout(self.out(y.transpose(1, 2).reshape(2, 16, 64)), self.of_output)

    def forward(self, x):
        return checkpoint(self.block, x, use_reentrant=self.is_reentrant)


@pytest.mark.parametrize(
    "options", [{}, {"of_attention": 0.1}, {"of_output": 0.1}, {"is_reentrant": True, "of_attention": 0.1}]
)
def test_a_checkpointed_block_with_attention_runs_its_first_product_and_attention_twice(options):
    found = gt.capture(Checkpointed(**options), "bf16[2,16,64]", grad=True, device="H200")
    assert {product.problem.name: product.count for product in found.products} == {
        "32x192x64:bf16:nt:addmm": 2,
        "32x64x64:bf16:nt:addmm": 1,
        "32x64x64:bf16:nn": 1,
        "64x64x32:bf16:tn": 1,
        "32x64x192:bf16:nn": 1,
        "192x64x32:bf16:tn": 1,
    }
    sizes = "×".join(["[2, 4, 16, 16]"] * 3)
    assert {work.operation: work.count for work in found.unseen} == {
        f"aten._scaled_dot_product_flash_attention.default{sizes}": 2,
        f"aten._scaled_dot_product_flash_attention_backward.default{sizes}": 1,
    }


class Projections(torch.nn.Module):
    """Three layers of one input."""

    def __init__(self):
        super().__init__()
        self.q, self.k, self.v = (torch.nn.Linear(64, width, bias=False) for width in (128, 32, 96))

    def forward(self, x):
        x = x.relu()
        return self.q(x), self.k(x), self.v(x)


class Adapted(torch.nn.Module):
    """Two layers with adapters of a low rank, and the residual."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(2))
        self.down = torch.nn.ModuleList(torch.nn.Linear(64, 8) for _ in range(2))
        self.up = torch.nn.ModuleList(torch.nn.Linear(8, 64) for _ in range(2))

    def forward(self, x):
        for layer, down, up in zip(self.layers, self.down, self.up, strict=True):
            x = x + (layer(x) + 2 * up(down(x))).sin() * x
        return x


class Shared(torch.nn.Module):
    """Layer that runs three times, the last time on views of all that it made."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        y = self.layer(x)
        z = self.layer(y.sin()) + x
        return self.layer(torch.cat([x, y, z])[::3]) @ y.t(), z.sum(), y


def graphs(model, inputs, autograd_grad):
    """Return the code of a model's graphs, forward and backward."""
    found = []

    def keep(graph, _):
        found.append(graph.code)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    compiled = torch.compile(model, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep))
    with patch("torch.autograd.grad", autograd_grad):
        leaves = tree_leaves(compiled(inputs.requires_grad_()))
        torch.autograd.backward(leaves, [torch.ones_like(each) for each in leaves])
    return found


@pytest.mark.parametrize("kind", [Projections, Adapted, Shared, Checkpointed])
def test_gradients_are_added_in_the_order_of_torchs_engine(kind):
    model = kind()
    inputs = torch.randn(2, 16, 64, dtype=torch.bfloat16) if kind is Checkpointed else torch.randn(9, 64)
    assert graphs(model, inputs, gradients.grad) == graphs(model, inputs, torch.autograd.grad)


def test_the_sum_of_the_inputs_gradients_lies_behind_the_first_layers_product():
    found = gt.capture(Projections().bfloat16(), "bf16[32,64]", grad=True, device="H200")
    chains = {product.problem.name: product.epilogues for product in found.products}
    if release_of(torch.__version__) < "2.14":
        assert chains["32x64x128:bf16:nn"] == (("add(matrix.add(matrix2)).relu_backward(matrix3)", 1),)
    else:  # Inductor makes each sum the bias of an addmm
        assert chains["32x64x128:bf16:nn:addmm:bias=matrix"] == (("relu_backward(matrix)", 1),)
    assert chains["32x64x96:bf16:nn"] == ()


@dataclass
class Output:
    hidden: torch.Tensor
    layers: int = 1


@pytest.mark.parametrize("held", [Output, lambda y: [1, Output(y)], lambda y: SimpleNamespace(of=(y, None))])
def test_gradients_are_those_of_tensors_in_objects_too(held):
    found = gt.capture(lambda x, w: held(x @ w), "bf16[16,64]", "bf16[64,64]", grad=True, device="H200")
    assert sum(product.count for product in found.products) == 3
