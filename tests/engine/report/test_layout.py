"""Text tables that fit a terminal, and their order."""

from __future__ import annotations

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import (
    Grid,
    Report,
    bound,
    config_text,
    count,
    json_value,
    lead_of,
    lead_text,
    left_out,
    microseconds,
    natural,
    readable,
    readable_unit,
    span,
    tally,
)

LONGEST = "2048x4096x4096:bf16:nt:addmm:bias=matrix:dynamic_m=true"
CONFIG = "BLOCK_M=128 BLOCK_N=256 BLOCK_K=128 GROUP_M=8 num_stages=4 num_warps=8 EPILOGUE_SUBTILE=true"
GRID = Grid(
    {
        "problem": [LONGEST, "1x1x1"],
        "run": ["triton_mm", "aten"],
        "95 % interval": ["1824.1–1830.9", "1.0–1.1"],
        "why": ["baseline wins", "wins"],
        "config": [CONFIG, "-"],
    },
    ("problem", "run", "why", "config"),
)


@pytest.mark.parametrize("width", [200, 120, 80, 60, 56])
def test_a_table_fits_the_width_and_keeps_every_cell(width):
    text = GRID.to_text(width)
    assert max(map(len, text.splitlines())) <= max(width, len(LONGEST))
    words = text.split()
    for cells in GRID.columns.values():
        assert all(word in words for cell in cells for word in cell.split())


def test_long_lines_of_text_are_wrapped_at_words():
    text = Report({}, ["reason " * 30 + "\nshort"]).to_text(40)
    assert max(map(len, text.splitlines())) <= 40
    assert text.split() == ["reason"] * 30 + ["short"]


def test_numbers_are_sorted_as_numbers():
    sizes = ["1024x4096", "128x4096", "16x4096", "2048x4096"]
    assert sorted(sizes, key=natural) == ["16x4096", "128x4096", "1024x4096", "2048x4096"]
    assert sorted(["+10.0%", "-", "-3.2%", "+9.1%"], key=natural) == ["-3.2%", "+9.1%", "+10.0%", "-"]
    assert sorted(["-7.0%", "+25.0%", "+100.0%", "≤ 0.12%"], key=natural) == ["-7.0%", "≤ 0.12%", "+25.0%", "+100.0%"]


def test_a_report_is_sorted_and_filtered_by_what_its_tables_show():
    grid = Grid({"problem": ["b", "a", "c"], "best µs": ["10.0", "9.0", "-"]}, ("problem",))
    report = Report({}, ["title", grid])
    assert report.arranged("best", "").sections[1].columns["best µs"] == ["9.0", "10.0", "-"]
    assert report.arranged(None, "B").sections[1].columns["problem"] == ["b"]
    with pytest.raises(UsageError, match="no column 'speed'; known: problem, best µs"):
        report.arranged("speed", "")


SMALL = Grid({"problem": ["a", "bb"], "best": ["1", "22"], "config": ["x=1 y=2", "-"]}, ("problem", "config"))


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (None, "problem  best  config\n───────  ────  ───────\na           1  x=1 y=2\nbb         22  -"),
        (22, "problem  best  config\n───────  ────  ───────\na           1  x=1 y=2\nbb         22  -"),
        (21, "problem  best\n───────  ────\na           1\n    x=1 y=2\nbb         22\n    -"),
        (12, "problem\n  best\n  ────\na\n     1\n    x=1 y=2\nbb\n    22\n    -"),
        (5, "a\n  best\n  1\n    x=1\n    y=2\nbb\n  best\n  22\n    -"),
    ],
)
def test_a_table_that_is_too_wide_is_folded_in_three_steps(width, text):
    assert SMALL.to_text(width) == text


def test_names_and_values_of_a_narrow_table_are_packed_into_lines():
    grid = Grid({"p": ["wide problem"], "a": ["1"], "b": ["2"], "c": [""], "d": ["34567"]})
    assert grid.to_text(14) == "wide problem\n  a 1  b 2\n  d 34567"


def test_indented_text_keeps_its_indent_where_it_is_wrapped():
    report = Report({}, ["  one two three\nfour", Grid({"x": ["1"]})])
    assert report.to_text(9) == "  one two\n  three\nfour\n\nx\n─\n1"
    assert report.to_text() == "  one two three\nfour\n\nx\n─\n1"


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (microseconds(1234.5), "1.2"),
        (microseconds(None), "-"),
        (readable(0.0123, "J"), "12.30"),
        (readable(2.0, "points"), "2.0000"),
        (readable_unit("ns") + readable_unit("J") + readable_unit("x"), "µsmJx"),
        (lead_text(0.25) + lead_text(-0.07) + lead_text(None), "+25.0%-7.0%-"),
        (lead_of(125.0, 100.0), 0.25),
        (lead_of(None, 1.0), None),
        (lead_of(1.0, None), None),
        (bound(0.0012) + bound(None), "≤ 0.12%-"),
        (span(17, 32), "17–32"),
        (span(17, 17), "17"),
        (span(17, None), "17–"),
        (count(0, "row") + count(1, "row") + count(2, "row"), "0 rows1 row2 rows"),
        (left_out(0), []),
        (left_out(1), ["1 damaged row was left out"]),
        (left_out(2), ["2 damaged rows were left out"]),
        (tally({"a": 2, "b": 1}), "2 a, 1 b"),
        (tally({}), ""),
    ],
)
def test_words_and_numbers_of_reports(found, text):
    assert found == text


def test_values_for_programs_are_names_texts_and_parts():
    problem = Problem(16, 64, 32)
    found = json_value({"p": problem, Status.OK: [Status.OK, (1, None)], 3: Estimate(5.0, 4.0, 6.0)})
    estimate = {"time_ns": 5.0, "low_ns": 4.0, "high_ns": 6.0, "level": None, "stopped": "", "bits": ""}
    assert found == {"p": problem.name, "ok": ["ok", [1, None]], "3": estimate}


def test_a_config_is_shown_in_the_order_of_its_spaces_params():
    device = catalogue.device("H200")
    config = Config({"num_warps": 8, "BLOCK_N": 64, "BLOCK_M": 128, "own": 1})
    known, unknown = (Task(Problem(16, 64, 32), device, space) for space in ("triton_mm", "of_somebody"))
    assert config_text(known, config) == "BLOCK_M=128 BLOCK_N=64 num_warps=8 own=1"
    assert sorted(config_text(unknown, config).split()) == ["BLOCK_M=128", "BLOCK_N=64", "num_warps=8", "own=1"]
    assert config_text(known, None) == "-"


def test_a_column_is_found_by_its_header_a_word_or_us():
    grid = Grid({"µs now": ["2", "1"], "µs": ["3", "4"]})
    report = Report({}, [grid, "text"])
    assert report.arranged("us", "").sections[0].columns["µs"] == ["3", "4"]
    assert report.arranged("now", "").sections[0].columns["µs now"] == ["1", "2"]
    assert report.arranged(None, "").sections == [grid, "text"]
    with pytest.raises(UsageError, match="no column 'x'; known: none"):
        Report({}, ["text"]).arranged("x", "")
