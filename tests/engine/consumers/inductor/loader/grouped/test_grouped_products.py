"""Grouped products of the two operators of torch, in a graph that is lowered."""

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.loader.grouped.grouped_products import call_first  # noqa: E402 (torch is there)


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_scaled_grouped_mm_v2"), reason="this torch has no such operator")
@pytest.mark.parametrize(("recipe", "device", "first"), [(1, "cuda", True), (0, "cuda", False), (1, "cpu", False)])
def test_a_product_of_the_second_operator_calls_the_first_one_if_it_means_the_same(recipe, device, first):
    graph = torch.fx.Graph()
    x, weights, one, other, offs = map(graph.placeholder, ("x", "weights", "one", "other", "offs"))
    operands = (x, weights, [one], [recipe], [], [other], [1], [0], offs)
    aten = torch.ops.aten
    node = graph.call_function(aten._scaled_grouped_mm_v2.default, operands, {"use_fast_accum": True})
    node.meta["val"] = SimpleNamespace(device=torch.device(device))
    call_first(graph)
    expected = (aten._scaled_grouped_mm.default, (x, weights, one, other, offs, None, None, None, True))
    unchanged = (aten._scaled_grouped_mm_v2.default, operands)
    assert (node.target, node.args) == (expected if first else unchanged)
