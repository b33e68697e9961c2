"""A batch-invariant table serves every m by its rows, in all of torch's deterministic modes, and benchmarks nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.consumers.inductor.loader.loader_rows import parse_inductor_table
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.testing.exporter_conformance import example_table

pytestmark = pytest.mark.slow(5, together="probes")

TILES = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4}
CASE = {"name": "n=96", "op": "mm", "batch": 1, "n": 96, "k": 256, "dtype": "bfloat16", "layout": "nt", "bias": "none"}
BLOCKS = {  # BLOCK_M by m
    "static 1": "64",
    "static 16": "64",
    "static 5000": "128",
    "dynamic 16": "64",
    "dynamic 5000": "128",
    "ahead of time": "128",
}


def ranged(first, last, **tiles):
    problem = Problem.parse(f"{last}x96x256:bf16:nt:dynamic_m=true")
    choice = Choice("triton_mm", Config({**TILES, **tiles}), 9.0, 8.0, 9.5, 32, Evidence.MEASURED, "torch 2.13.0", "p")
    return RangeRow(problem, first, last, choice, ((last, 0.0),))


RANGES = ranged(2, 16), ranged(17, 64, BLOCK_M=128, num_warps=8)


@pytest.fixture(scope="module")
def answers(probed, exported):
    return probed("invariant_probe.py", exported(ranges=RANGES, batch_invariant=True), json.dumps(CASE))


def test_every_m_runs_a_row_in_every_mode_without_a_benchmark(answers):
    assert {"plain", "torch.use_deterministic_algorithms", "deterministic"} <= answers["modes"].keys()
    for mode, found in answers["modes"].items():
        assert {name: each["blocks"].get("BLOCK_M") for name, each in found.items()} == BLOCKS, mode
        assert {each["blocks"]["BLOCK_K"] for each in found.values()} == {"64"}, mode
        assert not any(each["benchmarks"] for each in found.values()), mode
    assert answers["warnings"] == []


def test_deterministic_inductor_runs_the_vendor_library_without_a_table(answers):
    assert answers["without"]["node"] == "ExternKernelOut"


def test_a_graph_of_a_dynamic_m_is_cut_where_another_row_begins_alone(answers):
    found = answers["modes"]["plain"]
    assert [found[f"dynamic {hint}"]["serves"] for hint in (16, 5000)] == [[2, 16], [17, None]]


def test_products_without_a_row_are_not_benchmarked(answers):
    assert answers["refused"].startswith("miss='autotune' with a batch-invariant table")


@pytest.mark.parametrize(
    ("tiles", "said"),
    [({"BLOCK_K": 128}, "by triton_mm, BLOCK_K 64, tcgen05"), ({"BLOCK_M": 16}, "by triton_mm, BLOCK_K 64, tcgen05")],
)
def test_rows_of_several_orders_are_not_exported(tiles, said):
    ranges, device = (RANGES[0], ranged(17, 64, **tiles)), catalogue.device("B200")
    mixed = replace(example_table(), device=device, rows=(), ranges=ranges, batch_invariant=True)
    with pytest.raises(TableError, match=said):
        export_table(InductorExporter(), mixed)
    assert export_table(InductorExporter(), replace(mixed, batch_invariant=False))


def test_an_epilogue_is_fused_in_graphs_of_both_kinds_or_in_none():
    ranges = (ranged(17, 64, BLOCK_M=256, BLOCK_N=128, num_warps=8),)  # whose accumulators leave no room
    row = Row(Problem.parse("16x96x256:bf16:nt"), (RANGES[0].choice,), None, 0.0, ())
    table = replace(example_table(), rows=(row,), ranges=ranges, batch_invariant=True)
    for of_table, fuses in ((table, False), (replace(table, ranges=()), True)):
        file = InductorExporter().export(of_table)["inductor_table.json"]
        rows = parse_inductor_table(file.encode()).rows.values()
        assert {each.fuses_cheap for its in rows for each in its} == {fuses}


def test_rows_of_several_block_k_are_hoppers_alone_and_none_is_the_vendor_librarys():
    def parsed(table):
        files = export_table(InductorExporter(), table)
        assert "lookup_table.json" not in files
        return parse_inductor_table(files["inductor_table.json"].encode())

    table = replace(example_table(), rows=(), ranges=RANGES, batch_invariant=True)
    assert parsed(table).batch_invariant
    mixed = replace(table, ranges=(RANGES[0], ranged(17, 64, BLOCK_K=128)))
    assert parsed(mixed).batch_invariant, "on Hopper"
    with pytest.raises(TableError, match="adds by triton_mm, BLOCK_K 128, mma"):
        parsed(replace(mixed, device=catalogue.device("A100")))
    with pytest.raises(TableError, match="no row of aten::mm"):
        InductorExporter().export(replace(example_table(), batch_invariant=True))
