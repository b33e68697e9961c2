"""Notes of a table: what the log, the report and a warning say of the products of a graph."""

from __future__ import annotations

import logging
import sys
import warnings
from types import ModuleType, SimpleNamespace

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from gemmtune.engine.consumers.inductor.epilogues.reader import PLAIN, ReadEpilogue  # noqa: E402 (torch is there)
from gemmtune.engine.consumers.inductor.loader import loader  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.explain.notes import ProductNotes  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.explain.table_use import LIBRARY  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.loader_rows import InductorTable, ProductRow  # noqa: E402
from gemmtune.engine.consumers.inductor.loader.lowered import Counts, LoweredProduct  # noqa: E402
from gemmtune.engine.records.epilogue.text import parse_epilogue  # noqa: E402

KEY = "mm:bfloat16:nt:1x64x128:none:static"
TILES = {"BLOCK_M": 16}
ATEN = ProductRow(16, 16, "aten::mm", {})
ROW = ProductRow(2, 16, "triton::mm", TILES)
READ = ReadEpilogue(parse_epilogue("relu"), frozenset({"relu"}), "", ())


class Graph(SimpleNamespace):
    __hash__ = object.__hash__


def product(m=16, key=KEY, read=PLAIN):
    return LoweredProduct(m, m if isinstance(m, int) else 16, key, 128, read)


@pytest.fixture
def lowering():
    """Return a function that makes notes of a table for the H200, and a graph that is lowered."""

    def make(miss="aten"):
        return ProductNotes("NVIDIA H200", miss), Graph(parent=None, finalize=lambda *asked: ("ended", asked))

    return make


def lines(notes):
    return [str(use) for use in notes.report().counts]


def warned(call):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        call()
    return [str(each.message) for each in found]


@pytest.mark.parametrize(
    ("outcome", "asked", "row", "why", "line"),
    [
        ("row", product(), ROW, "", "16x64x128:bf16:nt (m 2 to 16) triton::mm {'BLOCK_M': 16}"),
        ("aten row", product(), ATEN, "", "16x64x128:bf16:nt aten::mm"),
        ("next choice", product(), ATEN, " (cute::k is old)", "16x64x128:bf16:nt aten::mm (cute::k is old)"),
        ("miss", product(), None, "", "ATen runs"),
        ("miss", product(), None, "; the table is for NVIDIA H200", "ATen runs; the table is for NVIDIA H200"),
    ],
)
def test_a_product_is_logged_with_its_row_or_what_runs(lowering, caplog, outcome, asked, row, why, line):
    notes, graph = lowering()
    with caplog.at_level(logging.INFO, "gemmtune"):
        notes.record(outcome, graph, asked, row, why, KEY)
    assert lines(notes) == caplog.messages == [f"16x64x128:bf16:nt: {outcome}, {line}"]


def test_what_is_no_product_is_logged_with_the_reason(lowering):
    notes, graph = lowering()
    notes.record("no problem", graph, "addmm: alpha or beta: is 2")
    assert lines(notes) == ["addmm: no problem, alpha or beta: is 2"]


def test_a_miss_that_inductor_tunes_says_so(lowering):
    notes, graph = lowering("autotune")
    notes.record("miss", graph, product(17))
    assert lines(notes) == ["17x64x128:bf16:nt: miss, Inductor tunes it"]


def test_a_row_is_named_by_its_key_and_an_epilogue_apart_with_the_reason(lowering):
    wanted, unread = product(read=READ), product(read=ReadEpilogue(None, frozenset(), "atan, no known name"))
    notes, graph = lowering()
    notes.record("row", graph, wanted, ATEN, "", wanted.full_key)
    notes.record("row", graph, wanted, ATEN, "", KEY, True)
    notes.record("row", graph, unread, ATEN, "", KEY, True)
    notes.record("row", graph, product(), ATEN, "", KEY, True)
    named, plain = "16x64x128:bf16:nt:epilogue=relu", "16x64x128:bf16:nt"
    assert lines(notes) == [
        f"{named}: row, {named} aten::mm",
        f"{named}: row, {plain} aten::mm, epilogue apart",
        f"{plain}: row, {plain} aten::mm, epilogue apart: atan, no known name",
        f"{plain}: row, {plain} aten::mm",
    ]


HEAD = "gemmtune's table has no row for any product of a graph: "
SEE = ". See gemmtune_inductor.report()"


ELSEWHERE = "; the table is for NVIDIA H200"


@pytest.mark.parametrize(
    ("products", "why", "message"),
    [
        ([17], "", "17x64x128:bf16:nt"),
        ([17, 17, 18, 19], "", "17x64x128:bf16:nt, 18x64x128:bf16:nt, 19x64x128:bf16:nt"),
        ([17, 18, 19, 20, 21], "", "17x64x128:bf16:nt, 18x64x128:bf16:nt, 19x64x128:bf16:nt and 2 more"),
        ([17, "mm: n is dynamic"], "", "17x64x128:bf16:nt, mm; n is dynamic"),
        (["mm: n is dynamic"], "", "mm; n is dynamic"),
        ([f"x: {LIBRARY}, 2x3"], "", None),
        ([17], ELSEWHERE, None),  # of which another warning tells
        ([17, ROW], "", None),
        ([17, "failed"], "", None),
    ],
)
def test_a_graph_without_any_row_ends_in_one_warning(lowering, products, why, message):
    notes, graph = lowering()
    for each in products:
        if each == "failed":
            notes.record("failed", None, "mm: see the warning")
        elif each is ROW:
            notes.record("row", graph, product(), ROW, "", KEY)
        elif isinstance(each, str):
            notes.record("no problem", graph, each)
        else:
            notes.record("miss", graph, product(each), None, why)
    answers = []
    found = warned(lambda: answers.append(graph.finalize(1)))
    assert answers == [("ended", (1,))]
    assert found == ([] if message is None else [HEAD + message + SEE])
    assert "finalize" not in vars(graph)  # the graph's own method is back
    assert warned(lambda: notes.warn(HEAD + str(message) + SEE)) == ([] if message else [HEAD + "None" + SEE])


def test_a_graph_that_cannot_tell_of_its_end_is_noted_all_the_same(lowering):
    notes, graph = lowering()
    del graph.finalize
    notes.record("miss", graph, product(17))
    assert notes.report().misses == ("17x64x128:bf16:nt",)
    assert not hasattr(graph, "finalize")


def test_grouped_products_are_misses_and_those_that_no_row_serves_have_their_reason(lowering, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))

    def node(target, *sizes, device="cuda", args=()):
        value = torch.empty(sizes, device="meta", dtype=torch.bfloat16)
        value = value if device == "meta" else SimpleNamespaceTensor(value, device)
        return SimpleNamespace(target=target, meta={"val": value}, args=args, kwargs={})

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
    one, scaled = torch.ops.aten._grouped_mm.default, torch.ops.aten._scaled_grouped_mm.default
    nodes = [a, node(one, 8, 32, args=(a, b, offsets)), node(torch.ops.aten.mm.default, 8, 32, args=(a, b))]
    nodes += [node(one, 8, 32, device="cpu", args=(a, b)), SimpleNamespace(target=one, meta={})]
    nodes += [node(scaled, 8, 32, args=(a, b, a, b, offsets))]
    notes, _ = lowering()
    notes.see_graph(Graph(parent=None, module=SimpleNamespace(graph=SimpleNamespace(nodes=nodes))))
    assert lines(notes) == [
        "grouped:rows:m8:g2:n32:k64:bf16:nn: miss, ATen runs",
        f"{scaled}: no problem, {LIBRARY}, for no row serves grouped products [8, 64]×[2, 64, 32] of bfloat16",
    ]


@pytest.mark.parametrize("names", [{}, {"ProductNotes": lambda device: None}])
def test_the_report_of_another_gemmtune_counts_as_none(monkeypatch, names):
    other = ModuleType("gemmtune_report")
    vars(other).update(names)
    monkeypatch.setitem(sys.modules, ProductNotes.__module__, other)
    assert type(loader._counts_of(InductorTable("hash", "NVIDIA H200", {}, {}, {}, {}))) is Counts
