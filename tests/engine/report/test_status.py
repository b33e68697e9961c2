"""Tests of the progress of a campaign, read from its database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.status import status_report
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), protocol="graph-cold-l2")
TASK = replace(MEASURED.task, space="triton_mm")
ATEN = replace(TASK, space="aten")
LATER = replace(TASK, problem=Problem(16, 64, 64))
NOW = datetime(2026, 11, 21, 12, 1, 5, tzinfo=UTC)


def measured(x, time_ns, task=TASK, second=0, worker="host/gpu0", status=Status.OK):
    return replace(
        MEASURED,
        task=task,
        config=Config({"x": x}),
        status=status,
        estimate=Estimate(time_ns, time_ns, time_ns) if status is Status.OK else None,
        created_at=f"2026-11-21T12:00:{second:02}+00:00",
        worker=worker,
    )


HELD = [
    measured(0, 9.0e4, ATEN),
    measured(1, 1e5, second=10),
    measured(2, 8e4, second=20),
    measured(3, 0, status=Status.BUILD_FAILED, second=21),
    measured(4, 0, status=Status.BUILD_FAILED, second=22, worker="host"),
    measured(5, 1e3, LATER, second=30, worker="host/gpu1"),
]
FINAL = Final(
    (
        Finalist(TASK, Config({"x": 2}), MEASURED.toolchain, Estimate(8e4, 8e4, 8e4), (8e4,), (0.0, 0.0)),
        Finalist(TASK, Config({"x": 1}), MEASURED.toolchain, Estimate(8e4, 8e4, 8e4), (8e4,), (-0.001, 0.1)),
    ),
    "graph-cold-l2",
    "host/gpu0",
    "2026-11-21T12:00:40+00:00",
)


@pytest.fixture(params=["file", "server"])
def report(request, tmp_path):
    server = request.param == "server"
    url = request.getfixturevalue("postgres_server").new_database() if server else str(tmp_path / "m.db")
    with Database.open(url) as database:
        database.add(HELD)
        database.add_final(FINAL)
        return status_report(database, NOW)


def test_json_has_every_problem_and_worker(report):
    record = report.to_json()
    assert (record["measurements"], record["finals"], record["failures"]) == (6, 1, {"build_failed": 2})
    assert (record["last_measured_at"], record["last_minute"]) == ("2026-11-21T12:00:30+00:00", 5)
    later, first = record["problems"]
    assert (later["problem"], later["best_ns"], later["baseline_ns"]) == ("16x64x64:bf16:nt", 1e3, None)
    assert first == {
        "device": TASK.device.sku,
        "problem": TASK.problem.name,
        "evidence": "measured",
        "protocol": "graph-cold-l2",
        "evaluations": 4,
        "failures": {"build_failed": 2},
        "best_space": "triton_mm",
        "best_ns": 8e4,
        "baseline_ns": 9e4,
        "regret_bound": 0.001,
    }
    assert record["workers"] == {
        "host/gpu1": {"measured": 1, "last_at": "2026-11-21T12:00:30+00:00"},
        "host": {"measured": 1, "last_at": "2026-11-21T12:00:22+00:00"},
        "host/gpu0": {"measured": 4, "last_at": "2026-11-21T12:00:21+00:00"},
    }


def test_text_has_every_problem_and_worker(report):
    text = report.to_text()
    lines = [line.split() for line in text.splitlines()]
    assert text.splitlines()[0] == "2 problems, 6 measurements; 1 final; last measured 35 s ago, 5 in the last minute"
    assert text.splitlines()[1] == "failed: 2 build_failed"
    key = f"{TASK.device.sku}/{TASK.problem.name}"
    assert [key, "80.0", "90.0", "+12.5%", "4", "2", "build_failed", "≤", "0.10%"] in lines
    assert ["host/gpu0", "4", "44", "s", "ago"] in lines


def test_report_of_an_empty_database_has_no_problems(tmp_path):
    with Database.open(tmp_path / "empty.db") as database:
        report = status_report(database, NOW)
    assert report.to_text() == "0 problems, 0 measurements"
    assert report.to_json()["last_measured_at"] is None


def test_failures_are_sorted_whatever_the_order_of_the_database(tmp_path):
    kinds = [Status.RUN_FAILED, Status.BUILD_FAILED, Status.WRONG_RESULT]
    found = []
    for number, order in enumerate((kinds, kinds[::-1])):
        with Database.open(tmp_path / f"{number}.db") as database:
            for place, status in enumerate(order):
                database.add([measured(place, 0, status=status)])
            found.append(status_report(database, NOW).to_json())
    for record in found:
        assert [*record["problems"][0]["failures"]] == sorted(status.value for status in kinds)
        assert record["problems"][0]["failures"] == record["failures"] == dict.fromkeys(sorted(record["failures"]), 1)
