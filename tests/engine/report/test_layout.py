"""Text tables that fit a terminal, and their order."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.report.layout import Grid, Report, natural

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
