"""Grouped products with a table and without, lowered by the installed torch; see grouped_probe.py."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from typer.testing import CliRunner

from gemmtune.engine.api.table import Table
from gemmtune.engine.api.tune_result import export_everywhere
from gemmtune.engine.cli.commands import app
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.grouped.product import Grouped
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.table_file import table_sha256, write_table
from gemmtune.engine.testing.exporter_conformance import example_table
from gemmtune.engine.toolchain.releases import release_of

pytestmark = [
    pytest.mark.slow(10, together="probes"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(find_spec("cutlass") is None, reason="nvidia-cutlass-dsl is not installed"),
]

TILES = {"tile_m": 128, "tile_n": 128, "cluster_m": 1, "cluster_n": 1, "pingpong": False}
QUACK = TILES | {"is_dynamic_persistent": False, "max_swizzle_size": 8}


def choice(space, config=()):
    times = 100.0, 99.0, 101.0
    return Choice(space, Config(dict(config)), *times, 32, Evidence.MEASURED, "torch 2.13.0", "events-cold-l2")


def row(problem, space, config=()):
    return Row(Grouped.parse(problem), (choice(space, config),), None, 0.0, ())


UP, DOWN = "grouped:rows:m64:g4:n96:k256:bf16:nt", "grouped:rows:m64:g4:n256:k96:bf16:nt"
INNER, OF_INPUT = "grouped:inner:m96:g4:n256:k64:bf16:tn", "grouped:rows:m64:g4:n256:k96:bf16:nn"
FAST = "grouped:rows:m64:g4:n96:k256:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])"
EXACT = f"{FAST}:accumulation=exact"
ROWS = row(UP, "quack_grouped", QUACK), row(INNER, "quack_grouped", QUACK), row(DOWN, "aten_grouped")
ROWS += row(EXACT, "quack_grouped", QUACK), row(FAST, "aten_grouped")
RANGES = (
    RangeRow(Grouped.parse("grouped:rows:m256:g4:n96:k256:bf16:nt"), 2, 256, choice("quack_grouped", QUACK), ()),
    RangeRow(Grouped.parse("grouped:rows:m1024:g4:n96:k256:bf16:nt"), 257, 1024, choice("aten_grouped"), ()),
    RangeRow(Grouped.parse(EXACT), 2, 256, choice("quack_grouped", QUACK), ()),
)


@pytest.fixture(scope="module")
def report(unbuilt, probed, exported):
    return probed(
        "grouped_probe.py",
        exported(ROWS, RANGES),
        "stock",
        "table",
        "max=rows,no row,scales,fast scales",
        "autotune=layer,fast scales,no row",
    )


@pytest.fixture(scope="module")
def uses(report):
    """Problem and outcome of each product, by case."""
    return {
        name: [(use["problem"], use["outcome"]) for use in found["uses"] for _ in range(use["count"])]
        for name, found in report["table"].items()
    }


def test_whatever_compiles_without_a_table_compiles_with_it_and_nothing_is_benchmarked(report):
    for arm in ("table", "max"):
        for name, found in report[arm].items():
            stock = report["stock"][name]
            assert found["failure"] == stock["failure"], name
            assert found["benchmarks"] == 0
            assert found["outputs"] == stock["outputs"], name
            assert not [said for said in found["said"] if "no row" not in said], name


def test_a_row_is_the_one_choice_for_each_kind_and_others_are_atens(report, uses):
    assert uses["rows"] == [(UP, "row")]
    assert uses["inner"] == [(INNER, "row")]
    assert uses["training"] == [(UP, "row"), (INNER, "row"), (OF_INPUT, "miss")]
    assert report["table"]["rows"]["selections"] == []  # a binary is put in without a selection
    (selection,) = report["table"]["training"]["selections"]
    assert selection == ["grouped_mm", ["_grouped_mm"]]


def test_products_with_scales_have_rows_that_sum_as_they_do(report, uses):
    assert uses["scales"] == uses["open scales"] == [(EXACT, "row")]
    is_in_a_graph = release_of(version("torch")) >= "2.13"  # before, Dynamo breaks the graph at the operator
    assert uses["second operator"] == ([(EXACT, "row")] if is_in_a_graph else [])
    assert uses["fast scales"] == [(FAST, "aten row")]
    (selection,) = report["table"]["fast scales"]["selections"]
    assert selection == ["scaled_grouped_mm", ["_scaled_grouped_mm"]]


def test_a_row_of_aten_is_not_tuned_again_where_products_without_a_row_are(report):
    benchmarks = {name: found["benchmarks"] for name, found in report["autotune"].items()}
    assert benchmarks.pop("no row") > 5
    assert benchmarks == {"layer": 0, "fast scales": 0}


def test_layers_share_a_row_beside_one_that_runs_aten(uses):
    assert sorted(uses["layer"]) == sorted([(UP, "row"), (DOWN, "aten row"), (UP, "row")])


def test_open_and_unbacked_rows_are_served_by_ranges(report, uses):
    assert uses["in a range"] == [(UP.replace("m64", "m96"), "row")]
    assert uses["open rows"] == [(UP, "row")]
    assert uses["open beyond"] == [(UP.replace("m64", "m4096"), "miss")]
    (use,) = report["table"]["open beyond"]["uses"]
    assert use["detail"] == "ATen runs; its size is open: tune several, with --ranges"
    assert uses["unbacked rows"] == [(UP, "row")]  # that of the range of 64
    assert uses["unbacked beyond"] == [(UP.replace("m64", "m4096"), "aten row")]  # that of the largest range
    assert uses["bounded rows"][0][1] == "row"  # that of the one range that has them all


def test_a_product_without_a_row_is_a_miss_and_what_no_row_serves_has_its_reason(report, uses):
    missing = "grouped:rows:m64:g4:n96:k512:bf16:nt"
    assert uses["no row"] == [(missing, "miss")]
    (said,) = report["table"]["no row"]["said"]
    assert missing in said
    reasons = {"batch": "[4, 64, 256]×[4, 256, 96] of 3 by 3 dimensions; torch.bmm computes it, and has rows"}
    reasons |= {"strided scales": "per group and column of B", "empty": "it is empty"}
    for name, reason in reasons.items():
        (use,) = report["table"][name]["uses"]
        assert use["outcome"] == "no problem"
        assert use["detail"].endswith(reason)
        assert report["table"][name]["said"] == []


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ((row(UP.replace("bf16", "fp16"), "aten_grouped"),), "rows are of groups of rows or of k, in bf16 or e4m3"),
        ((row("grouped:batched:m64:g4:n96:k256:bf16:nn", "aten_grouped"),), "of groups of rows or of k, in bf16"),
        ((row(UP, "triton_grouped"),), "known: aten, quack_grouped"),
    ],
)
def test_what_inductor_cannot_tell_or_run_is_refused_by_name(rows, said):
    with pytest.raises(TableError, match=f"grouped:.*{said}"):
        export_table(InductorExporter(), replace(example_table(), rows=rows, ranges=()))


@pytest.mark.usefixtures("unbuilt")
def test_rows_of_several_routings_become_the_one_that_loses_least_over_them():
    fast = {each: choice("quack_grouped", QUACK | {"max_swizzle_size": each}) for each in (4, 8)}
    times = {UP: {4: 90.0, 8: 95.0}, f"{UP}:routing=zipf": {4: 150.0, 8: 100.0}}
    base = replace(choice("aten_grouped"), time_ns=160.0, high_ns=161.0)
    rows = []
    for problem, of in times.items():
        choices = [replace(fast[each], time_ns=time, low_ns=time, high_ns=time) for each, time in of.items()]
        rows.append(Row(Grouped.parse(problem), (*sorted(choices, key=lambda each: each.time_ns), base), base, 0.0, ()))
    ranges = [RangeRow(Grouped.parse(each).resized(256), 2, 256, choice("aten_grouped"), ()) for each in times]
    table = replace(example_table(), rows=tuple(rows), ranges=tuple(ranges))
    content = json.loads(export_table(InductorExporter(), table)["inductor_table.json"])["rows"]
    (ranged,), (served,) = content.values()
    assert served["kwargs"]["max_swizzle_size"] == 8
    assert served["facts"]["loss"] == pytest.approx(95 / 90 - 1)
    assert ranged["facts"]["problem"] == ranges[0].problem.name
    said = InductorExporter().left_out(table)
    assert said.startswith("what differs in a mask's values or its routing alone has one config: ")
    assert all(problem in said for problem in times)


@pytest.mark.usefixtures("unbuilt")
def test_aten_stands_behind_a_binary_whatever_else_was_timed():
    first, second = choice("quack_grouped", QUACK), choice("triton_grouped")
    found = Row(Grouped.parse(UP), (first, second), choice("aten_grouped"), 0.0, ())
    files = export_table(InductorExporter(), replace(example_table(), rows=(found,), ranges=()))
    ((entry,),) = json.loads(files["inductor_table.json"])["rows"].values()
    assert entry["otherwise"] == {"template": "aten::_grouped_mm", "kwargs": {}}


@pytest.mark.usefixtures("unbuilt")
@pytest.mark.parametrize(("quack_ns", "template"), [(101.0, "cute::quack_grouped"), (119.5, "aten::_grouped_mm")])
def test_the_fastest_choice_that_inductor_runs_stands_for_one_that_it_cannot(tmp_path, quack_ns, template):
    best, rest = choice("triton_grouped"), replace(choice("quack_grouped", QUACK), time_ns=quack_ns, high_ns=quack_ns)
    base = replace(choice("aten_grouped"), time_ns=120.0, high_ns=121.0)
    found = Row(Grouped.parse(UP), (best, base, rest), base, 0.2, ())
    ranged = replace(RANGES[0], choice=best)
    table = replace(example_table(), rows=(found, row(DOWN, "aten_grouped")), ranges=(ranged,))
    paths, (note,), broken = export_everywhere(Table.of(table), tmp_path)
    fields = json.loads((tmp_path / "inductor/inductor_table.json").read_text())
    entries = {each["facts"]["problem"]: each for its in fields["rows"].values() for each in its}
    assert sorted(entries) == sorted((UP, DOWN))
    assert entries[UP]["template"] == template
    assert entries[UP]["facts"]["loss"] == pytest.approx({"cute": 0.01, "aten": 0.2}[template[:4]])
    assert fields["left_out"] == {"triton_grouped": 2}
    assert fields["table_sha256"] == table_sha256(table)
    assert note.startswith("exported to inductor: 2 choices of triton_grouped left out: ")
    assert all(name in note for name in (UP, f"{ranged.problem.name} from 2 on"))
    assert paths
    assert not broken

    write_table(tmp_path / "table.json", table)
    done = CliRunner().invoke(app, ["export", str(tmp_path / "table.json"), "--out", str(tmp_path / "again")])
    assert (done.exit_code, f"gemmtune: {note}" in done.output) == (0, True)
