"""Facts of a graph's nodes: views, tensors, pointwise operations, and reductions over the last dimension."""

from __future__ import annotations

import operator

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor import config  # noqa: E402 (torch is there)
from torch.fx import Graph  # noqa: E402

from gemmtune.engine.consumers.inductor.epilogues import graph_nodes  # noqa: E402

aten = torch.ops.aten


class Made:
    """A graph that grows node by node, with values of a shape."""

    def __init__(self):
        self.graph = Graph()

    def given(self, *shape):
        return self.valued(self.graph.placeholder(f"x{len(self.graph.nodes)}"), shape)

    def call(self, target, *args, shape=(4, 8), **kwargs):
        return self.valued(self.graph.call_function(target, args, kwargs), shape)

    def valued(self, node, shape):
        node.meta["val"] = torch.empty(shape, device="meta")
        return node


@pytest.fixture
def made():
    return Made()


@pytest.mark.parametrize(
    ("args", "kwargs", "reduces"),
    [
        ((), {}, True),
        (([],), {}, True),
        (([1],), {}, True),
        (([-1],), {}, True),
        (([0],), {}, False),
        (([-2],), {}, False),
        (([0, 1],), {}, True),
        ((1,), {}, True),
        ((0,), {}, False),
        ((-1,), {}, True),
        ((), {"dim": 0}, False),
        ((), {"dim": [1]}, True),
        ((None,), {}, True),
    ],
)
def test_a_reduction_is_over_the_last_dimension_or_over_all(made, args, kwargs, reduces):
    read = made.given(4, 8)
    assert graph_nodes.reduces_last(made.call(aten.sum.dim_IntList, read, *args, **kwargs), read) is reduces


def test_a_reduction_of_one_element_is_over_its_last_dimension(made):
    read = made.given()
    assert graph_nodes.reduces_last(made.call(aten.sum.dim_IntList, read, [0]), read) is False


def test_a_view_has_a_base_and_the_views_between(made):
    base = made.given(4, 8)
    one = made.call(aten.t.default, base, shape=(8, 4))
    other = made.call(aten.slice.Tensor, one, 0, 0, 2, shape=(2, 4))
    computed = made.call(aten.relu.default, other)
    assert [*graph_nodes.views_of(other)] == [other, one]
    assert [graph_nodes.base_of(node) for node in (base, one, other, computed)] == [base, base, base, computed]
    assert [*graph_nodes.views_of(base)] == [*graph_nodes.views_of(computed)] == []
    item = made.call(operator.getitem, made.call(aten.split.Tensor, base, 2), 0)
    assert graph_nodes.base_of(item) is base
    assert graph_nodes.shape_of(other) == (2, 4)
    base.meta["val"] = 3
    assert graph_nodes.shape_of(base) == ()


def test_operators_have_names_and_what_else_is_called_has_none(made):
    base = made.given(4, 8)
    nodes = [base, made.call(aten.add.Tensor, base, 1), made.call(operator.getitem, base, 0), made.call(max, base, 1)]
    assert [graph_nodes.name_of(node) for node in nodes] == ["", "add", "getitem", ""]


@pytest.mark.parametrize(
    ("target", "pointwise", "tensor"),
    [
        (aten.relu.default, True, False),
        (aten.clone.default, True, False),
        (torch.ops.prims.convert_element_type.default, True, False),
        (aten.mm.default, False, True),
        (aten.sum.default, False, True),
        (aten.t.default, False, False),
        (aten.cat.default, False, False),
        (aten.full.default, False, False),
    ],
)
def test_a_pointwise_operation_nobody_reads_whole_is_inlined(made, target, pointwise, tensor):
    node = made.call(target, made.given(4, 8))
    assert (graph_nodes.is_pointwise(node), graph_nodes.is_tensor(node)) == (pointwise, tensor)
    node.meta.clear()
    assert not graph_nodes.is_pointwise(node)
    assert graph_nodes.is_tensor(made.given(1))
    assert not graph_nodes.is_pointwise(made.given(1))


@pytest.mark.parametrize(
    ("path", "forced"),
    [
        ([aten.mm.default], True),
        ([aten.t.default, aten.mm.default], True),
        ([aten.t.default, aten.view.default, aten.mm.default], True),
        ([aten.sum.default], False),
        ([aten.relu.default, aten.mm.default], False),
        ([aten.cat.default, aten.mm.default], False),
        ([aten.t.default], False),
        ([], False),
    ],
)
def test_a_kernel_that_inlines_nothing_forces_what_it_reads_to_be_stored(made, path, forced):
    node = last = made.call(aten.relu.default, made.given(4, 8))
    for target in path:
        last = made.call(target, last)
    assert graph_nodes.is_forced(node) is forced


def test_what_the_graph_returns_is_stored(made):
    node = made.call(aten.relu.default, made.given(4, 8))
    made.graph.output((node,))
    assert graph_nodes.is_forced(node)


@pytest.mark.parametrize(("limit", "several", "reads", "users", "stored"), [
    (3, 1, 3, 1, False),
    (3, 1, 4, 1, True),
    (3, 2, 2, 2, False),
    (3, 2, 3, 2, True),
    (None, 4, 8, 1, False),
    (None, 4, 9, 1, True),
])  # fmt: skip
def test_a_node_that_reads_more_tensors_than_the_settings_allow_is_stored(made, limit, several, reads, users, stored):
    value = made.call(aten.relu.default, made.given(4, 8))
    for _ in range(reads - 1):
        value = made.call(aten.add.Tensor, value, made.given(4, 8))
    for _ in range(users):
        made.call(aten.neg.default, value)
    with config.patch(realize_acc_reads_threshold=limit, realize_reads_threshold=several):
        assert graph_nodes.is_forced(value) is stored


def test_a_tensor_read_twice_counts_once_and_a_number_not_at_all(made):
    x, number = made.given(4, 8), made.given()
    value = made.call(aten.add.Tensor, x, made.call(aten.view.default, x))
    value = made.call(aten.mul.Tensor, value, number)
    transposed = made.call(aten.add.Tensor, value, made.call(aten.t.default, x))
    made.call(aten.neg.default, transposed)
    with config.patch(realize_acc_reads_threshold=1):
        assert not graph_nodes.is_forced(value)
        assert graph_nodes.is_forced(transposed)


def test_what_is_inlined_into_an_output_ends_at_products_and_tensors(made):
    x = made.given(4, 8)
    product = made.call(aten.mm.default, x, x)
    relu = made.call(aten.relu.default, product)
    other = made.call(aten.neg.default, made.given(4, 8))
    output = made.call(aten.add.Tensor, relu, other)
    assert {*graph_nodes.inlined_into(output, {product: None, relu: None})} == {output, relu, other}
