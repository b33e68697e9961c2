"""Rows that hold what gemmtune does not write are refused for their reason, though their digests are right."""

from __future__ import annotations

import json
from collections import namedtuple
from dataclasses import replace

import pytest

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.catalogue import device
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.serialization import (
    DamagedRow,
    final_of,
    final_row,
    identity,
    measurement_of,
    measurement_row,
    task_of,
    toolchain_in,
)

TASK = Task(Problem(16, 4096, 4096), device("H200"), "triton_mm")
TOOLCHAIN = Toolchain((("torch", "2.13.0"),))
STATE = DeviceState(1980, 3201, 41, 432_100, driver="580.95.05")
MEASURED = Measurement(
    task=TASK,
    config=Config({"BLOCK_M": 16}),
    status=Status.OK,
    evidence=Evidence.MEASURED,
    protocol="graph-cold-l2",
    toolchain=TOOLCHAIN,
    worker="host:0",
    created_at="2026-11-21T10:00:00Z",
    samples_ns=(10.0, 11.0),
    estimate=Estimate(10.5, 10.0, 11.0),
    energy_joules=0.01,
    error_norm=1e-3,
    before=STATE,
    after=STATE,
    resources=Resources(255, 196_608, 8, 128),
    build_seconds=0.5,
)
FINALIST = Finalist(TASK, MEASURED.config, TOOLCHAIN, MEASURED.estimate, (10.0, 11.0), (0.0, 0.0), 3)
FINAL = Final((FINALIST,), "graph-cold-l2", "host:0", "2026-11-21T10:00:00Z", (FailedFinalist(TASK, Config({}), "no"),))


def stored(table, values, **damage):
    """Return a row as a query finds it, damaged before its digest was taken."""
    cells = {"id": 1} | values | damage
    names = [column.name for column in table.c]
    cells[schema.DIGEST] = schema.row_digest(cells[name] for name in names[1:-1])
    return namedtuple("Row", names)(*(cells[name] for name in names))


def measurement(made=MEASURED, **damage):
    return stored(schema.measurements, measurement_row(made, 1, 1), **damage)


def final(**changes):
    """Return the row of a final whose content, or whose first finalist, has other fields."""
    row = final_row(FINAL)
    content = json.loads(row["content"])
    of_content = {name: value for name, value in changes.items() if name in ("finalists", "failed")}
    of_finalist = {name: value for name, value in changes.items() if name in content["finalists"][0]}
    content["finalists"][0] |= of_finalist
    content |= of_content
    cells = {name: value for name, value in changes.items() if name in row}
    return stored(schema.finals, row | {"content": json.dumps(content)} | cells)


def test_whole_rows_read_back():
    assert measurement_of(measurement(), TASK, TOOLCHAIN) == MEASURED
    assert final_of(final()) == FINAL
    assert final_of(final(failed=[])) == replace(FINAL, failed=())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ({"config": '{"BLOCK_M":32}'}, r'its config \{"BLOCK_M":32\} does not match its digest'),
        ({"config_digest": "0"}, "does not match its digest"),
        ({"status": "run_failed"}, "its status is run_failed, and its estimate Estimate.*; ok alone has one"),
        ({"estimate": None}, "its status is ok, and its estimate None; ok alone has one"),
        ({"samples_ns": "[]"}, "it is measured and ok, and has no samples"),
        ({"samples_ns": "[]", "evidence": "replayed"}, "it is replayed and ok, and has no samples"),
        ({"samples_ns": "[NaN]"}, r"samples_ns: \[0\]=nan is not a number"),
        ({"samples_ns": '["a"]'}, r"samples_ns: \[0\]='a' is not a number"),
        ({"samples_ns": "[1.0] "}, "is not one JSON value"),
        ({"outliers": "["}, "outliers: Expecting value"),
        ({"drift": -1e-9}, "drift=-1e-09 is not a number from 0 on"),
        ({"drift": float("inf")}, "drift=inf is not a number from 0 on"),
        ({"energy_joules": -0.1}, "energy_joules=-0.1 is not"),
        ({"energy_joules": float("nan")}, "energy_joules=nan is not"),
        ({"build_seconds": -0.1}, "build_seconds=-0.1 is not"),
        ({"status": "fine"}, "status: 'fine' is not"),
        ({"evidence": "guessed"}, "evidence: 'guessed' is not"),
        ({"before": '{"sm_clock_mhz":"fast"}'}, "before: sm_clock_mhz='fast' is not an integer"),
        ({"after": "[]"}, r"after: \[\] is not an object"),
        ({"resources": "{}"}, "resources: it lacks the field"),
        ({"estimate": "{}"}, "estimate: it lacks the field"),
        ({"error_norm": "x"}, "error_norm: could not convert"),
        ({"worker": b"\xff"}, "a value is of another type than its column"),
        ({"drift": None}, "a value is of another type than its column"),
        ({"created_at": 3}, "a value is of another type than its column"),
    ],
)
def test_a_damaged_measurement_is_refused_for_what_is_wrong(damage, said):
    with pytest.raises(DamagedRow, match=said):
        measurement_of(measurement(**damage), TASK, TOOLCHAIN)


def test_what_may_be_empty_or_at_a_bound_is_read():
    estimated = replace(MEASURED, samples_ns=(), evidence=Evidence.ESTIMATED)
    assert measurement_of(measurement(estimated), TASK, TOOLCHAIN) == estimated
    failed = replace(MEASURED, status=Status.RUN_FAILED, reason="crashed", estimate=None, samples_ns=())
    assert measurement_of(measurement(failed), TASK, TOOLCHAIN) == failed
    still = replace(MEASURED, drift=0.0, energy_joules=0.0, build_seconds=1.7976931348623157e308)
    assert measurement_of(measurement(still), TASK, TOOLCHAIN) == still


@pytest.mark.parametrize(
    ("task", "toolchain", "said"),
    [
        (None, TOOLCHAIN, "its task is missing or damaged"),
        (TASK, None, "its toolchain is missing or damaged"),
        (None, None, "its task is missing or damaged"),
    ],
)
def test_a_measurement_of_nothing_is_refused(task, toolchain, said):
    with pytest.raises(DamagedRow, match=said):
        measurement_of(measurement(), task, toolchain)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"finalists": []}, "content: a final has a finalist at least"),
        ({"space": 3}, r"content: finalists\[0\]\.task\.space=3 is not text"),
        ({"failed": [{"space": 4, "config": {}, "reason": "no"}]}, r"content: failed\[0\]\.task\.space=4 is not text"),
        ({"behind": [0.1, 0.0]}, r"content: finalists\[0\]: behind=0.1 to 0.0 is no interval"),
        ({"behind": [0.1]}, r"finalists\[0\]\.behind=\[0\.1\] is not a list of 2"),
        ({"config": {"BLOCK_M": [1]}}, r"finalists\[0\]\.config\.BLOCK_M=\[1\] is not a number"),
        ({"toolchain": [["torch", 2]]}, r"finalists\[0\]\.toolchain\[0\]\[1\]=2 is not text"),
        ({"estimate": {}}, r"finalists\[0\]\.estimate lacks the field"),
        ({"samples_ns": ["1"]}, r"finalists\[0\]\.samples_ns\[0\]='1' is not a number"),
        ({"failed": [{}]}, r"failed\[0\]\.task\.space=None is not text"),
        ({"content": "{}"}, "content: it is no object with lists of finalists"),
        ({"content": "[[]]"}, "content: it is no object with lists of finalists"),
        ({"content": "{"}, "content: Expecting property name"),
        ({"problem": "{}"}, "problem field 'm' is missing"),
        ({"device": "{}"}, "it lacks the field 'arch'"),
        ({"protocol": b"\xff"}, "protocol=b.* is not text"),
        ({"worker": b"\xff"}, "worker=b.* is not text"),
        ({"created_at": b"\xff"}, "created_at=b.* is not text"),
    ],
)
def test_a_damaged_final_is_refused_for_what_is_wrong(changes, said):
    with pytest.raises(DamagedRow, match=said):
        final_of(final(**changes))


@pytest.mark.parametrize(
    ("read", "row"),
    [
        (lambda row: measurement_of(row, TASK, TOOLCHAIN), measurement()),
        (final_of, final()),
        (task_of, stored(schema.tasks, schema.encoded(schema.tasks, identity(TASK)))),
        (toolchain_in, stored(schema.toolchains, schema.encoded(schema.toolchains, identity(TOOLCHAIN)))),
    ],
)
def test_a_cell_that_differs_from_the_rows_digest_is_refused(read, row):
    read(row)
    read(row._replace(digest=None))  # a row of an older version
    with pytest.raises(DamagedRow, match="its digest does not match its content"):
        read(row._replace(digest="0" * 8))
    assert len(row.digest) == 8
    last = row._fields[-2]
    with pytest.raises(DamagedRow, match="its digest does not match its content"):
        read(row._replace(**{last: f"{getattr(row, last)} "}))


def test_a_task_under_another_key_is_refused():
    row = stored(schema.tasks, schema.encoded(schema.tasks, identity(TASK)), key="other")
    with pytest.raises(DamagedRow, match=f"its key is other, its content {TASK.key}"):
        task_of(row)


def test_a_digest_tells_rows_apart_by_every_cell_and_their_order():
    rows = [("a", "b"), ("b", "a"), ("ab", ""), ("a", "b", ""), (1, "b"), (1.0, "b"), (None, "b")]
    assert len({schema.row_digest(row) for row in rows}) == len(rows)
    assert schema.row_digest(("a", "b")) == "15e87871"  # as in databases that are written already
