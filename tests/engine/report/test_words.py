"""Numbers as they are printed, and what reports on tables say of each row."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import Any

import pytest

from gemmtune.engine.campaign.verify import Check, CheckedRange, Verified
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.report import layout
from gemmtune.engine.report.layout import Grid, Report
from gemmtune.engine.report.space import space_report
from gemmtune.engine.report.tables import range_row_json, range_text, size_name, table_report, verify_report

DEVICE = catalogue.device("H200")


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (layout.microseconds, (12_345.0,), "12.3"),
        (layout.microseconds, (None,), "-"),
        (layout.readable, (0.012345, "J"), "12.35"),
        (layout.readable, (0.5, "score"), "0.5000"),
        (layout.readable_unit, ("ns",), "µs"),
        (layout.readable_unit, ("J",), "mJ"),
        (layout.readable_unit, ("score",), "score"),
        (layout.lead_text, (0.25,), "+25.0%"),
        (layout.lead_text, (-0.021,), "-2.1%"),
        (layout.lead_text, (None,), "-"),
        (layout.lead_of, (10.0, 8.0), 0.25),
        (layout.lead_of, (None, 8.0), None),
        (layout.lead_of, (10.0, None), None),
        (layout.bound, (0.00123,), "≤ 0.12%"),
        (layout.bound, (None,), "-"),
        (layout.bound, (0.0,), "≤ 0.00%"),
        (layout.span, (17, 32), "17–32"),
        (layout.span, (17, 17), "17"),
        (layout.span, (17, None), "17–"),
        (layout.count, (1, "row"), "1 row"),
        (layout.count, (0, "row"), "0 rows"),
        (layout.count, (2, "row"), "2 rows"),
        (layout.tally, ({"a": 3, "b": 1},), "3 a, 1 b"),
        (layout.left_out, (0,), []),
        (layout.left_out, (1,), ["1 damaged row was left out"]),
        (layout.left_out, (2,), ["2 damaged rows were left out"]),
    ],
)
def test_a_number_is_printed_in_its_unit(function, arguments, text):
    assert function(*arguments) == text


def test_values_for_programs_are_plain():
    colour = Enum("Colour", {"RED": "red"})
    value = {1: (Problem(1, 2, 3), colour.RED), "x": [Check(Problem(1, 2, 3), "c", None, 0.5)]}
    assert layout.json_value(value) == {
        "1": [Problem(1, 2, 3).name, "red"],
        "x": [{"problem": Problem(1, 2, 3).name, "choice": "c", "time_ns": None, "loss": 0.5}],
    }


def test_a_config_is_in_the_order_of_its_space_with_unknown_names_last():
    task = Task(Problem.parse("64x64x64:bf16:nt"), DEVICE, "triton_mm")
    config = Config({"num_warps": 4, "other": 1, "BLOCK_M": 64})
    assert layout.config_text(task, config) == "BLOCK_M=64 num_warps=4 other=1"
    assert layout.config_text(replace(task, space="gone"), Config({"b": 1})) == "b=1"
    assert layout.config_text(task, None) == "-"


WIDE = Grid({"name": ["a", "bb"], "n": ["1", "22"], "text": ["one two", "three"]}, ("name", "text"))


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (None, "name   n  text\n────  ──  ───────\na      1  one two\nbb    22  three"),
        (17, "name   n  text\n────  ──  ───────\na      1  one two\nbb    22  three"),
        (16, "name   n\n────  ──\na      1\n    one two\nbb    22\n    three"),
        (8, "name   n\n────  ──\na      1\n    one\n    two\nbb    22\n    three"),
        (7, "name\n   n\n  ──\na\n   1\n    one\n    two\nbb\n  22\n    three"),
        (3, "a\n  n\n  1\n    one\n    two\nbb\n  n\n  22\n    three"),
    ],
)
def test_a_grid_gives_way_step_by_step(width, text):
    assert WIDE.to_text(width) == text


def test_a_grid_whose_last_column_is_a_number_keeps_it_in_the_row():
    grid = Grid({"name": ["a long name"], "n": ["1"]}, ("name",))
    assert grid.to_text(11) == "name\n  n\n  ─\na long name\n  1"


def test_names_and_values_share_lines_as_far_as_they_fit():
    grid = Grid({"name": ["x"], "one": ["1"], "two": [""], "three": ["333"], "four": ["4"]}, ("name",))
    assert grid.to_text(18).splitlines() == ["x", "  one 1  three 333", "  four 4"]
    assert grid.to_text(17).splitlines() == ["x", "  one 1", "  three 333", "  four 4"]


def test_a_column_is_found_by_its_whole_header_first():
    grid = Grid({"best µs": ["9.0", "10.0"], "µs": ["2.0", "1.0"]})
    assert Report({}, [grid]).arranged("µs", "").sections[0].columns["µs"] == ["1.0", "2.0"]
    assert Report({}, [grid]).arranged("best", "").sections[0].columns["best µs"] == ["9.0", "10.0"]
    assert Report({}, [grid]).arranged(None, "").sections[0] == grid


def choice(space="triton_mm", time_ns=5_000.0, evidence=Evidence.MEASURED, toolchain="torch 2.13.0"):
    config = Config({"BLOCK_M": 64}) if space == "triton_mm" else Config({})
    return Choice(space, config, time_ns, time_ns * 0.9, time_ns * 1.1, 8, evidence, toolchain, "graph-cold-l2")


def row(m=16, best=5_000.0, base=10_000.0, **changes):
    baseline = choice("aten", base)
    first = choice(time_ns=best, evidence=changes.pop("evidence", Evidence.MEASURED))
    return Row(Problem(m, 32, 64), (first, baseline), baseline, 0.5, (first.config,), **changes)


def lines_of(report):
    return [line.split() for line in report.to_text().splitlines()]


def test_a_row_has_its_time_interval_baseline_and_bounds():
    table = Table(DEVICE, (row(128, regret_bound=0.0012), row(16, 8_000.0, loss=0.004)), "latency")
    report = table_report(table, ["a note"])
    small, large = (line for line in lines_of(report) if line and line[0] in ("16x32x64:bf16:nt", "128x32x64:bf16:nt"))
    assert small[1:6] == ["triton_mm", "8.0", "7.2–8.8", "0%", "10.0"]
    assert large[1:6] == ["triton_mm", "5.0", "4.5–5.5", "0%", "10.0"]
    rows: Any = report.to_json()["rows"]
    assert [each["loss"] for each in rows] == [0, 0.004]
    assert "0.12%" in large
    assert "0.40%" in small
    assert "0.00%" in large
    assert "made with torch 2.13.0" in report.to_text()
    assert "a note" in report.to_text()
    assert [each["baseline_ns"] for each in rows] == [10_000, 10_000]
    assert [each["ties"] for each in rows] == [1, 1]
    assert rows[0]["choices"][0]["samples"] == 8


def test_columns_that_say_nothing_are_left_out_and_estimates_have_no_interval():
    bare = table_report(Table(DEVICE, (row(),), "latency")).sections[1].columns
    assert not {"regret", "loss", "evidence"} & {*bare}
    mixed = table_report(Table(DEVICE, (row(), row(32, evidence=Evidence.ESTIMATED)), "latency")).sections[1].columns
    assert mixed["evidence"] == ["measured", "estimated"]
    assert mixed["95 % interval"] == ["4.5–5.5", "-"]
    empty = table_report(Table(DEVICE, (), "latency"))
    assert len(empty.sections) == 1
    assert ": 0 rows" in empty.sections[0]


def ranged(first=17, last=32, **losses):
    problem = Problem.parse("32x32x64:bf16:nt:dynamic_m=true")
    return RangeRow(problem, first, last, choice(), ((last, 0.01),), **losses)


def test_a_range_has_its_ends_and_losses():
    one = ranged(probed=((20, 0.02), (24, 0.0)), held_out=((18, 0.031),))
    assert range_text(one).endswith("m 17–32")
    record = range_row_json(one)
    assert (record["first"], record["last"]) == (17, 32)
    assert (record["tuned"], record["probed"], record["held_out"]) == ({32: 0.01}, {20: 0.02, 24: 0.0}, {18: 0.031})
    text = table_report(Table(DEVICE, (row(),), "latency", ranges=(one,))).to_text()
    for part in ("32: 1.0%", "20: 2.0%, 24: 0.0%", "18: 3.1%", "17–32"):
        assert part in text
    assert size_name(Table(DEVICE, (), "latency", ranges=(one,))) == "m"
    assert size_name(Table(DEVICE, (), "latency")) == "size"


def check(m=16, loss=0.0, time_ns=5_100.0):
    return Check(Problem(m, 32, 64), choice(), time_ns if loss is not None else None, loss)


def test_a_verification_counts_what_holds_and_what_was_repaired():
    rows = (check(1), check(2, 0.5), check(4, None), check(8, 0.3))
    broken = CheckedRange(ranged(), (check(20, 0.2, 6_000.0), check(24)))
    sound = CheckedRange(ranged(33, 64), (check(40),))
    probed = CheckedRange(ranged(65, 128, probed=((80, 0.0),)), (check(80, 0.4),))
    repaired = Table(DEVICE, (row(1), row(2), row(8)), "latency")
    report = verify_report(Verified(rows, (broken, sound, probed), repaired))
    last = report.sections[-1]
    assert "1 row of 4 hold" in last
    assert "1 range of 3" in last
    assert "2 rows replaced" in last
    assert "1 row dropped" in last
    lines = [line for line in lines_of(report) if line and "5.0" in line]
    assert [line[3:6] for line in lines if line[1] == "triton_mm"] == [
        ["5.1", "0.0%", "yes"],
        ["5.1", "50.0%", "no"],
        ["-", "-", "does"],
        ["5.1", "30.0%", "no"],
    ]
    assert any("20" in line and "20.0%" in line for line in lines)
    assert not any("24" in line for line in lines)  # it holds
    record: Any = report.to_json()
    assert record["rows"][2] == {**record["rows"][2], "said_ns": 5_000, "time_ns": None, "loss": None, "holds": False}
    assert [each["holds"] for each in record["ranges"]] == [False, True, False]


def test_a_table_that_holds_has_nothing_repaired():
    report = verify_report(Verified((check(),), (), Table(DEVICE, (row(),), "latency")))
    assert report.sections[-1] == "1 row of 1 hold"


@pytest.mark.parametrize(("loss", "holds"), [(0.0, True), (0.02, True), (0.0201, False), (None, False)])
def test_a_row_holds_up_to_two_percent(loss, holds):
    assert check(loss=loss).holds is holds
    assert CheckedRange(ranged(), (check(loss=loss),)).holds is holds
    assert not CheckedRange(ranged(), ()).holds


def test_a_space_is_reported_with_its_points_rejections_and_estimates():
    from types import SimpleNamespace

    task = Task(Problem.parse("16x32x64:bf16:nt"), DEVICE, "toy")
    feasible = (Config({"TILE": 2}), Config({"TILE": 4}))
    found = SimpleNamespace(
        points=5, size=5, feasible=feasible, rejections={"odd": 3}, examples={"odd": "TILE 1 is odd"}
    )
    prior = Prior({feasible[0]: 1.0}, "model 1")
    report = space_report(task, (Param("TILE", (1, 2, 3, 4, 5)),), found, feasible[:1], prior)
    text = report.to_text()
    assert "5 points, 2 feasible, 1 seed\n1 estimated by model 1" in text
    assert ["TILE", "1", "2", "3", "4", "5"] in lines_of(report)
    assert ["odd", "3", "TILE", "1", "is", "odd"] in lines_of(report)
    assert (report.to_json()["points"], report.to_json()["feasible"], report.to_json()["estimated"]) == (5, 2, 1)
    bare = space_report(
        task, (), SimpleNamespace(points=1, size=9, feasible=(), rejections={}, examples={}), (), Prior(reason="none")
    )
    assert len(bare.sections) == 2
    assert bare.sections[1] == "1 of 9 points, 0 feasible, 0 seeds\nnone"
