"""Products and libraries' kernels that run outside of graphs are counted by their sizes."""

from __future__ import annotations

import warnings

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch warns of itself
    from torch._subclasses.fake_tensor import FakeTensorMode

    from gemmtune.engine.consumers.inductor.capture import gradients
    from gemmtune.engine.consumers.inductor.capture.captured import Unseen
    from gemmtune.engine.consumers.inductor.capture.eager import EagerProducts
    from gemmtune.engine.consumers.inductor.floor.shares import Kind

A, B, V = torch.ones(2, 3), torch.ones(3, 4), torch.ones(3)
PRODUCTS = {
    "aten.mm[2, 3]×[3, 4]": lambda: A @ B,
    "aten.addmm[4]×[2, 3]×[3, 4]": lambda: torch.addmm(torch.ones(4), A, B),
    "aten.bmm[1, 2, 3]×[1, 3, 4]": lambda: torch.bmm(A[None], B[None]),
    "aten.baddbmm[4]×[1, 2, 3]×[1, 3, 4]": lambda: torch.baddbmm(torch.ones(4), A[None], B[None]),
    "aten.addbmm[4]×[1, 2, 3]×[1, 3, 4]": lambda: torch.addbmm(torch.ones(4), A[None], B[None]),
    "aten.mv[2, 3]×[3]": lambda: A @ V,
    "aten.addmv[2]×[2, 3]×[3]": lambda: torch.addmv(torch.ones(2), A, V),
    "aten.dot[3]×[3]": lambda: V @ V,
    "aten.convolution[1, 1, 2, 3]×[2, 1, 1, 1]": lambda: torch.conv2d(A[None, None], torch.ones(2, 1, 1, 1)),
    "aten._scaled_dot_product_flash_attention_for_cpu[1, 1, 2, 3]×[1, 1, 2, 3]×[1, 1, 2, 3]": (
        lambda: torch.nn.functional.scaled_dot_product_attention(*[A[None, None]] * 3)
    ),
}


@pytest.mark.parametrize(("name", "run"), PRODUCTS.items(), ids=PRODUCTS)
def test_a_product_is_counted_by_its_operands_and_runs(name, run):
    with EagerProducts(lambda: False) as eager:
        results = [run(), run()]
        torch.relu(A)
    assert {each: costs.total() for each, costs in eager.costs.items()} == {name: 2}
    assert torch.equal(results[0], run())


@pytest.mark.skipif(
    not torch._C._dispatch_has_kernel_for_dispatch_key("aten::_scaled_mm_v2", "CPU"),
    reason="this torch has no such operator for a CPU",
)
def test_a_scaled_product_of_the_second_operator_is_counted_with_its_flops():
    one, scale = torch.ones(16, 16).to(torch.float8_e4m3fn), [torch.ones(1)]
    with EagerProducts(lambda: False) as eager:
        torch._scaled_mm_v2(one, one.t(), scale, [0], [], scale, [0], [], None, torch.bfloat16)
    ((name, costs),) = eager.costs.items()
    (cost,) = costs
    assert (name, cost.flops) == ("aten._scaled_mm_v2[16, 16]×[16, 16]", 2 * 16**3)
    assert Unseen(name, "why", 1, costs).work.kind is Kind.PRODUCT


def test_what_a_graph_runs_is_not_counted_twice():
    with EagerProducts(lambda: True) as eager:
        torch.addmm(torch.ones(4), A, B, beta=2)
    assert not eager.costs
    assert EagerProducts.is_infra_mode() is EagerProducts.supports_higher_order_operators is True


@pytest.mark.parametrize(("kind", "gates"), [(torch.nn.LSTM, 4), (torch.nn.GRU, 3), (torch.nn.RNN, 1)])
def test_a_recurrent_layer_is_one_call_whose_weights_meet_each_row(kind, gates):
    layer = kind(8, 16, num_layers=2, batch_first=True)
    with torch.no_grad(), EagerProducts(lambda: False) as eager:
        out, _ = layer(torch.ones(3, 5, 8))
    assert not eager.costs
    ((name, costs),) = eager.layers.items()
    assert name == f"aten.{'rnn_tanh' if kind is torch.nn.RNN else kind.__name__.lower()}[3, 5, 8]"
    ((cost, count),) = costs.items()
    assert (count, cost.flops) == (1, 2 * 3 * 5 * gates * 16 * (8 + 16 + 16 + 16))
    assert out.shape == (3, 5, 16)


@pytest.mark.parametrize(("kind", "name"), [(torch.nn.LSTM, "lstm"), (torch.nn.GRU, "gru"), (torch.nn.RNN, "rnn_tanh")])
def test_gradients_of_a_recurrent_layer_without_data_are_one_call_of_twice_its_flops(kind, name):
    with FakeTensorMode(), EagerProducts(lambda: False) as eager:
        layer, x = kind(8, 16), torch.ones(3, 5, 8, requires_grad=True)
        out, _ = layer(x)
        gradients.backward(out.sum())
    assert not eager.costs
    assert x.grad.shape == x.shape
    assert all(each.grad.shape == each.shape for each in layer.parameters())
    flops = {name: cost.flops for name, costs in eager.layers.items() for cost in costs}
    assert [*flops] == [f"aten.{name}[3, 5, 8]", f"aten.{name}_backward[3, 5, 8]"]
    assert flops[f"aten.{name}_backward[3, 5, 8]"] == 2 * flops[f"aten.{name}[3, 5, 8]"]


def test_layers_and_products_are_left_as_they_were():
    before = torch._VF.lstm
    with EagerProducts(lambda: False), pytest.raises(RuntimeError, match="stop"):
        raise RuntimeError("stop")
    assert torch._VF.lstm is before
