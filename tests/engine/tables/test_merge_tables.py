"""Tables of several teams become one: the row with more evidence is kept, and conflicts are listed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import DeviceError, TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.tables.diff import merge_tables
from gemmtune.engine.testing.exporter_conformance import example_table

OURS = example_table()


def theirs(row, **changes):
    choice = replace(row.choices[0], config=Config({"BLOCK_M": 32}), space="triton_mm")
    of_row = {name: changes.pop(name) for name in ("baseline", "regret_bound") if name in changes}
    return replace(row, choices=(replace(choice, **changes),), **of_row)


def merged(*rows, ranges=((), ())):
    """Merge our table with one that has these rows; the sources of the rows, and the conflicts."""
    one, other = replace(OURS, ranges=ranges[0]), replace(OURS, rows=rows, ranges=ranges[1])
    return merge_tables({"ours": one, "theirs": other})


@pytest.mark.parametrize(
    ("changes", "source", "reason"),
    [
        ({}, "ours", "equal evidence, and named first"),
        ({"samples": 31}, "ours", "32 samples, not 31"),
        ({"samples": 33}, "theirs", "33 samples, not 32"),
        ({"samples": 99, "evidence": Evidence.ESTIMATED}, "ours", "measured, not estimated"),
        ({"samples": 99, "regret_bound": None}, "ours", "with a final, not without"),
        ({"samples": 99, "baseline": None}, "ours", "with a baseline, not without"),
    ],
)
def test_the_row_with_more_evidence_is_kept(changes, source, reason):
    row = OURS.rows[0]
    other = theirs(row, **changes)
    table, (conflict,) = merged(other)
    kept, left = (row, other) if source == "ours" else (other, row)
    assert next(each for each in table.rows if each.problem == row.problem) == kept
    assert (conflict.kept, conflict.other, conflict.source, conflict.reason) == (kept, left, source, reason)
    assert len(table.rows) == len(OURS.rows)


def test_rows_of_one_choice_are_no_conflict_and_rows_of_one_table_are_added():
    more = replace(OURS.rows[0], choices=(replace(OURS.rows[0].choices[0], samples=64),))
    one = replace(OURS, rows=OURS.rows[:1], measured_at="2026-11-20", drivers=("580.1",))
    other = replace(OURS, rows=(more, *OURS.rows[1:]), measured_at="2026-11-21", drivers=("590.2",))
    table, conflicts = merge_tables({"a": one, "b": other})
    assert conflicts == ()
    assert {row.problem: row for row in table.rows} == {row.problem: row for row in other.rows}
    assert (table.measured_at, table.drivers) == ("2026-11-21", ("580.1", "590.2"))


def test_the_ranges_of_one_gemm_go_together():
    problem, choice = OURS.rows[0].problem, OURS.rows[0].choices[0]
    whole = RangeRow(problem, 1, 64, choice, ((16, 0.0), (64, 0.0)))
    parts = (RangeRow(problem, 1, 16, choice, ((16, 0.0),)), RangeRow(problem, 17, 64, choice, ((32, 0.0), (64, 0.0))))
    table, (conflict,) = merged(ranges=((whole,), parts))
    assert table.ranges == parts
    assert (conflict.source, conflict.reason) == ("theirs", "3 sizes, not 2")


def test_tables_of_two_gpus_or_objectives_are_refused():
    for change, error in (
        ({"device": catalogue.device("H100-SXM")}, DeviceError),
        ({"objective": "energy"}, TableError),
    ):
        with pytest.raises(error):
            merge_tables({"a": OURS, "b": replace(OURS, **change)})
