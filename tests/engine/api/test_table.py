"""`gt.Table`: looked up, exported, compared, saved and verified."""

from __future__ import annotations

from dataclasses import replace

import pytest

import gemmtune as gt
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, TableError, UnknownPlugin
from gemmtune.engine.records.table import RangeRow

DECODE, LARGE = "16x4096x4096:bf16:nt", "2048x4096x4096:bf16:nt"
RECORDED = gt.landscapes("h200")


@pytest.fixture(scope="module")
def table() -> gt.Table:
    return gt.tune([DECODE, LARGE], backend=RECORDED, sampler="random", budget=16).table


def test_a_problem_between_the_rows_is_served_by_its_range(table):
    row = table.rows[0]
    between = RangeRow(row.problem, 16, 512, row.choices[0], tuned=((16, 0.0),))
    ranged = replace(table, ranges=(between,))
    assert ranged.lookup("100x4096x4096:bf16:nt") == row.choices[0]
    assert ranged.lookup("513x4096x4096:bf16:nt") is None
    assert ranged.lookup("100x4096x4097:bf16:nt") is None
    assert ranged.lookup(LARGE) == table.rows[1].choices[0]


def test_a_saved_table_reads_back_equal(table, tmp_path):
    table.save(tmp_path / "t.json")
    assert gt.read_table(tmp_path / "t.json") == gt.read_table(str(tmp_path / "t.json")) == table
    with pytest.raises(TableError, match=r"none\.json"):
        gt.read_table(tmp_path / "none.json")


def test_export_writes_below_the_folder_and_names_what_there_is(table, tmp_path):
    paths = table.export("inductor", tmp_path)
    names = {path.relative_to(tmp_path / "inductor").parts[0] for path in paths}
    assert names == {
        "gemmtune_inductor",
        "gemmtune_record",
        "gemmtune_report",
        "inductor_table.json",
        "lookup_table.json",
    }
    assert all(path.stat().st_size for path in paths)
    with pytest.raises(UnknownPlugin, match="known: cute, inductor"):
        table.export("abacus", tmp_path)


def test_a_table_differs_from_another_in_its_rows(table):
    assert table.diff(table).same
    shorter = replace(table, rows=table.rows[:1])
    assert table.diff(shorter).gone == table.rows[1:]
    assert shorter.diff(table).added == table.rows[1:]
    with pytest.raises(DeviceError, match="H100"):
        table.require_device(catalogue.device("H100"))


def test_a_verified_table_is_saved_repaired(table, tmp_path):
    found = gt.verify(table, backend=RECORDED, out=tmp_path)
    assert found.holds
    assert found.table == gt.read_table(tmp_path / "table.json")
    assert "2 rows of 2 hold" in found.summary()
    assert len(found.report.to_json()["rows"]) == 2
