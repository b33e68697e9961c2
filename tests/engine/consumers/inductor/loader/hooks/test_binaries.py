"""A kernel is bound to the strides that its operands have: Inductor may not change them afterwards."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch._inductor import config, ir  # noqa: E402 (torch is there)
from torch._inductor.kernel_inputs import MMKernelInputs  # noqa: E402
from torch.fx import Graph  # noqa: E402

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.hooks import binaries  # noqa: E402
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402


class Undecided(ir.ComputedBuffer):
    def get_fill_order(self):
        return None  # its readers do not ask for one


def computed(name, *sizes):
    """A buffer whose strides Inductor may still choose."""
    layout = ir.FlexibleLayout(torch.device("cpu"), torch.bfloat16, [*sizes])
    data = ir.Pointwise(device=layout.device, dtype=layout.dtype, inner_fn=lambda _: 0.0, ranges=layout.size)
    return ir.TensorBox(ir.StorageBox(Undecided(name=name, layout=layout, data=data)))


def test_operands_and_the_epilogues_tensors_keep_their_layouts_once_a_kernel_is_chosen(monkeypatch):
    bound = []
    kernel = SimpleNamespace(bind=lambda nodes, layout: bound.append(([*nodes], layout)) or "choice")
    monkeypatch.setattr(binaries, "registered", lambda _: kernel)
    a, b, further = computed("a", 16, 64), computed("b", 64, 32), computed("c", 16, 32)
    inputs = MMKernelInputs([a, b])
    monkeypatch.setattr(inputs, "output_layout", lambda flexible: f"flexible {flexible}", raising=False)
    assert all(isinstance(each.data.data.layout, ir.FlexibleLayout) for each in (a, b, further))
    assert binaries.extern_choice(None, inputs, [further]) == "choice"
    assert all(isinstance(each.data.data.layout, ir.FixedLayout) for each in (a, b, further))
    assert bound == [([a, b, further], "flexible False")]
    binaries.extern_choice(None, inputs, layout="its own")
    assert bound[1] == ([a, b], "its own")


M, N = 16, 32


def sized(name, *sizes):
    return node_of(Graph().placeholder(name), *sizes)


def node_of(node, *sizes):
    node.meta["val"] = torch.empty(sizes, device="meta")
    return node


def why(monkeypatch, text, *operands, there=True):
    """Return why a binary cannot compute an epilogue of these operands."""
    env = dict.fromkeys(operands) if there else {}
    monkeypatch.setattr(binaries, "V", SimpleNamespace(graph=SimpleNamespace(current_node=sized("y", M, N), env=env)))
    read = ReadEpilogue(parse_epilogue(text), frozenset(), operands=operands) if text else PLAIN
    return binaries.why_not_computed(read)


@pytest.mark.parametrize(
    ("text", "sizes", "reason"),
    [
        ("", [], ""),
        ("relu", [], ""),
        ("add(matrix)", [(M, N)], ""),
        ("add(matrix)", [(4, 4, N)], ""),
        ("add(matrix)", [(M, 1)], "cannot compute its epilogue: matrix is expanded"),
        ("add(row)", [(N,)], ""),
        ("add(row)", [(1,)], "cannot compute its epilogue: row is expanded"),
        ("mul(column)", [(M, 1)], ""),
        ("mul(column)", [(1, 1)], "cannot compute its epilogue: column is expanded"),
        ("mul(scalar)", [()], ""),
        ("mul(scalar)", [(M,)], "cannot compute its epilogue: scalar is expanded"),
        ("add(matrix).mul(matrix2)", [(M, N), (1, N)], "cannot compute its epilogue: matrix2 is expanded"),
        ("relu+gelu", [], ""),
        ("relu+gelu.to(fp32)", [], "cannot store outputs of several types"),
        ("relu.to(fp32)", [], ""),
    ],
)
def test_a_binary_computes_epilogues_of_whole_operands_into_one_type(monkeypatch, text, sizes, reason):
    assert why(monkeypatch, text, *(sized(f"x{place}", *size) for place, size in enumerate(sizes))) == reason


def test_operands_must_be_there_before_the_product(monkeypatch):
    matrix = sized("x", M, N)
    behind = "cannot compute its epilogue: matrix is computed behind the product"
    assert why(monkeypatch, "add(matrix)", matrix, there=False) == behind
    view = node_of(matrix.graph.call_function(torch.ops.aten.t.default, (matrix,)), N, M)
    monkeypatch.setattr(binaries, "V", SimpleNamespace(graph=SimpleNamespace(env={matrix: 1})))
    assert binaries._is_there(view)  # a view of what is there
    computed = matrix.graph.call_function(torch.ops.aten.relu.default, (matrix,))
    assert not binaries._is_there(computed)
    assert not binaries._is_there(matrix.graph.call_function(torch.ops.aten.t.default, (computed,)))


def test_what_nothing_reads_must_be_dropped(monkeypatch):
    with config.patch(use_dce=False):
        assert why(monkeypatch, "") == "needs Inductor's setting use_dce, which drops what nothing reads"


def test_a_node_is_lowered_to_the_value_once():
    node = Graph().call_function(torch.ops.aten.relu.default, ())
    binaries._replace_lowering(node, "value")
    assert node.target._inductor_lowering_function
    assert node.target(1, key=2) == "value"
    assert node.target is torch.ops.aten.relu.default


def test_values_are_kept_to_the_end_of_the_graph(monkeypatch):
    last = {"a": 1}
    monkeypatch.setattr(binaries, "V", SimpleNamespace(graph=SimpleNamespace(user_to_last_uses=last)))
    binaries.keep_values()
    assert last == {}
    monkeypatch.setattr(binaries, "V", SimpleNamespace(graph=SimpleNamespace()))
    binaries.keep_values()  # a torch that keeps no such note
