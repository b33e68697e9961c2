"""Notes of a table: what the log, the report and a warning say of the products of a graph."""

from __future__ import annotations

import logging
import warnings
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue  # noqa: E402 (torch is there)
from gemmtune.engine.consumers.inductor.loader.hooks import product_notes  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, ProductRow  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.lowered import LoweredProduct  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.table_use import LIBRARY, ProductUse  # noqa: E402
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402

KEY = "mm:bfloat16:nt:1x64x128:none:static"
TILES = {"BLOCK_M": 16}
ATEN = ProductRow(16, 16, "aten::mm", {})
ROW = ProductRow(2, 16, "triton::mm", TILES)
READ = ReadEpilogue(parse_epilogue("relu"), frozenset({"relu"}), "", ())
DEVICE = torch.device("cuda", 0)


class Graph(SimpleNamespace):
    __hash__ = object.__hash__


def product(m=16, key=KEY, read=PLAIN):
    return LoweredProduct(m, m if isinstance(m, int) else 16, key, 128, read)


@pytest.fixture
def lowering(monkeypatch):
    """Return a function that makes notes of a table; `graph` is lowered meanwhile."""

    def make(rows=None, policy="ignore", miss="aten", gpu="NVIDIA H200", usable=None):
        rows = {KEY: (ROW,)} if rows is None else rows
        table = InductorTable("hash", "NVIDIA H200", {}, {}, rows, {})
        graph = Graph(parent=None, finalize=lambda *asked: ("ended", asked))
        monkeypatch.setattr(product_notes, "V", SimpleNamespace(graph=graph))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(name=gpu))
        notes = product_notes.ProductNotes(table, policy, miss, rows if usable is None else usable)
        return notes, graph

    return make


def lines(notes):
    return [str(use) for use in notes.uses.report().counts]


def warned(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in found]


@pytest.mark.parametrize(
    ("asked", "row", "outcome", "why", "line"),
    [
        (product(), ROW, "row", "", "16x64x128:bf16:nt: row, 16x64x128:bf16:nt (m 2 to 16) triton::mm {'BLOCK_M': 16}"),
        (product(), ATEN, "aten row", "", "16x64x128:bf16:nt: aten row, 16x64x128:bf16:nt aten::mm"),
        (
            product(),
            ATEN,
            "next choice",
            " (cute::k is old)",
            "16x64x128:bf16:nt: next choice, 16x64x128:bf16:nt aten::mm (cute::k is old)",
        ),
        ("addmm: alpha or beta: is 2", None, "miss", "", "addmm: no problem, alpha or beta: is 2"),
    ],
)
def test_a_product_is_logged_with_its_row_or_reason(lowering, caplog, asked, row, outcome, why, line):
    notes, _ = lowering()
    with caplog.at_level(logging.INFO, "gemmtune"):
        notes.record(asked, row, DEVICE, outcome, why)
        notes.record("", None, DEVICE, "miss")
    assert lines(notes) == caplog.messages == [line]


def test_a_row_is_named_by_the_epilogue_that_it_was_timed_with(lowering):
    timed = ProductRow(16, 16, "cute::k", {}, "k", ATEN)
    wanted = product(read=READ)
    notes, _ = lowering({KEY: (ROW,), wanted.full_key: (timed,)})
    assert [notes.is_of_epilogue(wanted, row) for row in (timed, ATEN, ROW)] == [True, True, False]
    assert not notes.is_of_epilogue(product(), ROW)
    notes.record(wanted, ATEN, DEVICE, "row")
    notes.record(wanted, ROW, DEVICE, "row")
    assert lines(notes) == [
        "16x64x128:bf16:nt:epilogue=relu: row, 16x64x128:bf16:nt:epilogue=relu aten::mm",
        "16x64x128:bf16:nt:epilogue=relu: row, 16x64x128:bf16:nt (m 2 to 16) triton::mm {'BLOCK_M': 16}",
    ]


@pytest.mark.parametrize(
    ("how", "detail"),
    [
        ({}, "ATen runs"),
        ({"gpu": "NVIDIA L4"}, "ATen runs"),  # the policy lets any GPU use the rows
        ({"policy": "warn", "gpu": "NVIDIA L4"}, "ATen runs; the table is for NVIDIA H200"),
        ({"miss": "autotune"}, "Inductor tunes it"),
    ],
)
def test_a_miss_says_what_runs(lowering, how, detail):
    notes, _ = lowering(**how)
    notes.record(product(17), None, DEVICE, "miss")
    assert lines(notes) == [f"17x64x128:bf16:nt: miss, {detail}"]


HEAD = "gemmtune's table has no row for any product of a graph: "
SEE = ". See gemmtune_inductor.report()"


@pytest.mark.parametrize(
    ("how", "products", "message"),
    [
        ({}, [17], "17x64x128:bf16:nt"),
        (
            {},
            [17, 17, 18, 19],
            "17x64x128:bf16:nt, 18x64x128:bf16:nt, 19x64x128:bf16:nt",
        ),
        (
            {},
            [17, 18, 19, 20, 21],
            "17x64x128:bf16:nt, 18x64x128:bf16:nt, 19x64x128:bf16:nt and 2 more",
        ),
        ({"rows": {}}, [17], "17x64x128:bf16:nt"),
        ({"rows": {}}, [17, "mm: n is dynamic"], "17x64x128:bf16:nt, mm; n is dynamic"),
        ({"rows": {}}, ["mm: n is dynamic"], "mm; n is dynamic"),
        ({"rows": {}}, [f"x: {LIBRARY}, 2x3"], None),
        ({"policy": "warn", "gpu": "NVIDIA L4"}, [17], None),  # of which another warning tells
        ({}, [17, (16, ROW)], None),
        ({}, [17, "failed"], None),
    ],
)
def test_a_graph_without_any_row_ends_in_one_warning(lowering, how, products, message):
    notes, graph = lowering(**how)
    for each in products:
        if each == "failed":
            notes.note(None, ProductUse("mm", "failed", "see the warning"))
        elif isinstance(each, tuple):
            notes.record(product(each[0]), each[1], DEVICE, "row")
        else:
            notes.record(each if isinstance(each, str) else product(each), None, DEVICE, "miss")
    answers = []
    found = warned(lambda: answers.append(graph.finalize(1)))
    assert answers == [("ended", (1,))]
    assert found == ([] if message is None else [HEAD + message + SEE])
    assert "finalize" not in vars(graph)  # the graph's own method is back
    assert warned(lambda: notes.warn(HEAD + str(message) + SEE)) == ([] if message else [HEAD + "None" + SEE])


def test_a_graph_that_cannot_tell_of_its_end_is_noted_all_the_same(lowering):
    notes, graph = lowering()
    del graph.finalize
    notes.record(product(17), None, DEVICE, "miss")
    assert notes.uses.report().misses == ("17x64x128:bf16:nt",)
    assert not hasattr(graph, "finalize")


def test_grouped_products_are_recorded_with_their_sizes(lowering):
    def node(target, *sizes, device="cuda", inputs=()):
        value = torch.empty(sizes, device="meta")
        value = value if device == "meta" else SimpleNamespaceTensor(value, device)
        return SimpleNamespace(target=target, meta={"val": value}, all_input_nodes=inputs)

    class SimpleNamespaceTensor(torch.Tensor):
        @staticmethod
        def __new__(cls, value, device):
            made = torch.Tensor._make_subclass(cls, value)
            made.place = torch.device(device)
            return made

        @property
        def device(self):
            return self.place

    a, b, offsets = node("a", 8, 64), node("b", 2, 64, 32), node("c", 2)
    name = "aten._grouped_mm.default"
    nodes = [a, node(name, 8, 32, inputs=(a, b, offsets)), node("aten.mm.default", 8, 32, inputs=(a, b))]
    nodes += [node(name, 8, 32, device="cpu", inputs=(a, b)), SimpleNamespace(target=name, meta={}, all_input_nodes=())]
    notes, _ = lowering()
    notes.see_graph(Graph(parent=None, module=SimpleNamespace(graph=SimpleNamespace(nodes=nodes))))
    assert lines(notes) == [f"{name}: no problem, {LIBRARY}, 8x64 by 2x64x32"]
