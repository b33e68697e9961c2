from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import DeviceError, TableError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.report.tables import diff_report
from gemmtune.engine.tables.diff import diff_tables

CHOICE = Choice("triton_mm", Config({"x": 1}), 1000.0, 995.0, 1005.0, 32, Evidence.MEASURED, "torch 2.11.0", "graph")
H200 = catalogue.device("H200")


def table(device=H200, objective="latency", **first):
    """Return a table with a row m×8×8 for each `m<number>`, with that first choice."""
    rows = (Row(Problem(int(m[1:]), 8, 8), (c,), None, 0.0, (c.config,)) for m, c in first.items())
    return Table(device, tuple(rows), objective)


def changed(**changes):
    return replace(CHOICE, **changes)


def test_a_table_does_not_differ_from_itself():
    found = diff_tables(table(m1=CHOICE), table(m1=CHOICE))
    assert found.same
    assert diff_report(found, H200).to_text() == "no difference"


def test_a_batch_invariant_table_differs_from_one_that_is_not():
    found = diff_tables(replace(table(m1=CHOICE), batch_invariant=True), table(m1=CHOICE))
    assert not found.same
    assert diff_report(found, H200).to_text() == "only the first table is batch-invariant"


def test_added_rows_gone_rows_and_changed_winners_are_listed_apart():
    before = table(m1=CHOICE, m2=CHOICE, m3=CHOICE, m4=CHOICE)
    other, vendor = changed(config=Config({"x": 2})), changed(space="aten", config=Config({}), time_ns=1001.0)
    found = diff_tables(before, table(m1=other, m3=vendor, m4=CHOICE, m5=CHOICE))
    assert [row.problem.size for row in found.added] == [5]
    assert [row.problem.size for row in found.gone] == [2]
    assert [c.after.choices[0] for c in found.winner] == [other, vendor]
    assert (found.time, found.terms, found.same) == ((), (), False)


@pytest.mark.parametrize(
    ("after", "differs"),
    [
        (changed(time_ns=1010.0, low_ns=1005.0, high_ns=1015.0), False),  # they meet
        (changed(time_ns=1011.0, low_ns=1006.0, high_ns=1016.0), True),
        (changed(time_ns=989.0, low_ns=984.0, high_ns=994.0), True),
        (changed(time_ns=1011.0, low_ns=1006.0, high_ns=1016.0, samples=5), False),  # few samples need 2 %
        (changed(time_ns=1020.0, low_ns=1020.0, high_ns=1020.0, samples=1), True),
        (changed(toolchain="torch 2.13.0"), False),
    ],
)
def test_times_differ_if_the_intervals_do_not_meet(after, differs):
    found = diff_tables(table(m1=CHOICE), table(m1=after))
    assert len(found.time) == differs
    assert found.same is not differs


@pytest.mark.parametrize("terms", [{"evidence": Evidence.REPLAYED}, {"protocol": "events"}])
def test_times_of_other_evidence_or_protocol_are_listed_and_not_compared(terms):
    far = changed(time_ns=2000.0, high_ns=2000.0, **terms)
    found = diff_tables(table(m1=CHOICE), table(m1=far))
    assert (len(found.terms), found.time) == (1, ())
    assert "+100" not in diff_report(found, H200).to_text()


def test_tables_of_two_gpus_or_two_objectives_are_not_compared():
    with pytest.raises(DeviceError, match="NVIDIA B200, not NVIDIA H200"):
        diff_tables(table(m1=CHOICE), table(catalogue.device("B200"), m1=CHOICE))
    with pytest.raises(TableError, match="objective latency, the other of energy"):
        diff_tables(table(m1=CHOICE), table(objective="energy", m1=CHOICE))


def test_each_difference_is_a_line_and_a_record():
    slower = changed(time_ns=1100.0, low_ns=1095.0, high_ns=1105.0)
    found = diff_tables(table(m1=CHOICE, m2=CHOICE), table(m2=slower, m3=CHOICE))
    title, _, _, _, *lines = diff_report(found, H200).to_text().splitlines()
    assert title == "3 differences"
    assert [line.split() for line in lines] == [
        ["added", "3x8x8:bf16:nt", "-", "-", "triton_mm", "1.0", "-", "x=1"],
        ["gone", "1x8x8:bf16:nt", "triton_mm", "1.0", "-", "-", "-", "x=1"],
        ["time", "2x8x8:bf16:nt", "triton_mm", "1.0", "triton_mm", "1.1", "+10.0%", "x=1"],
    ]
    record = diff_report(found, H200).to_json()
    assert [len(record[kind]) for kind in ("added", "gone", "winner", "terms", "time")] == [1, 1, 0, 0, 1]
    (change,) = record["time"]
    assert (change["problem"], change["before"]["time_ns"], change["after"]["time_ns"]) == ("2x8x8:bf16:nt", 1000, 1100)
    assert change["after"]["config"] == {"x": 1}


def test_added_and_gone_ranges_are_named_with_their_choice():
    def ranged(first, choice):
        return replace(table(), ranges=(RangeRow(Problem(64, 8, 8, dynamic_m=True), first, 64, choice, ((64, 0.0),)),))

    vendor = changed(space="aten", config=Config({}))
    assert diff_tables(ranged(2, CHOICE), ranged(2, changed(time_ns=1001.0))).same
    found = diff_tables(ranged(2, vendor), ranged(17, vendor))
    assert (found.same, [r.first for r in found.ranges_added], [r.first for r in found.ranges_gone]) == (
        False,
        [17],
        [2],
    )
    text = diff_report(found, H200).to_text()
    assert "range added  mx8x8:bf16:nt:dynamic_m=true, m 17–64" in text
    assert "range gone" in text
    assert diff_report(found, H200).to_json()["ranges_added"][0]["last"] == 64
