"""Tests of `show` on a table and on a database made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.report.database import database_report
from gemmtune.engine.report.tables import table_report
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

MEASURED = replace(example_measurement(), protocol="graph-cold-l2")
TASK = MEASURED.task


def measurement(x, time_ns, energy_joules=None, protocol="graph-cold-l2+energy"):
    estimate = Estimate(time_ns, 0.99 * time_ns, 1.01 * time_ns)
    return replace(MEASURED, config=Config({"x": x}), estimate=estimate, energy_joules=energy_joules, protocol=protocol)


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "measurements.db") as opened:
        yield opened


def table(regret_bound):
    choice = Choice("aten", Config({}), 9e4, 8.9e4, 9.1e4, 32, MEASURED.evidence, "torch 2.11", MEASURED.protocol)
    row = Row(TASK.problem, (choice,), choice, 0.0, (choice.config, Config({"x": 1})), regret_bound)
    return Table(TASK.device, (row,), "latency")


def test_fastest_config_of_a_database_has_the_least_estimate(database):
    outlier = replace(measurement(1, 8e4), samples_ns=(8e4, 8e6, 8e6))
    failed = replace(MEASURED, config=Config({"x": 3}), status=Status.RUN_FAILED, estimate=None, energy_joules=None)
    database.add([outlier, measurement(2, 9e4), replace(failed, protocol="graph-cold-l2+energy", reason="crashed")])
    (task,) = database_report(database).to_json()["tasks"]
    assert (task["best_ns"], task["best_config"]) == (8e4, {"x": 1})
    assert (task["protocol"], task["evaluations"], task["failures"]) == ("graph-cold-l2+energy", 3, {"run_failed": 1})
    assert task["front"] == []
    assert "Pareto" not in database_report(database).to_text()


def test_a_database_with_energy_shows_the_front_of_each_task(database):
    database.add([measurement(1, 9e4, 0.05), measurement(2, 8e4, 0.06), measurement(3, 9.5e4, 0.055)])
    (task,) = database_report(database).to_json()["tasks"]
    assert task["front"] == [
        {"latency_ns": 8e4, "energy_J": 0.06, "config": {"x": 2}},
        {"latency_ns": 9e4, "energy_J": 0.05, "config": {"x": 1}},
    ]
    assert database_report(database).to_text().split("\n\n")[2:] == [
        f"Pareto front of {TASK.key}, 2 of 3 configs",
        "latency µs  energy mJ  config\n"
        "──────────  ─────────  ──────\n"
        "      80.0      60.00  x=2\n"
        "      90.0      50.00  x=1",
    ]


def test_times_of_two_protocols_have_a_line_each(database):
    database.add([measurement(1, 9e4, protocol="graph-cold-l2"), measurement(1, 7e4, protocol="graph-warm-l2")])
    tasks: Any = database_report(database).to_json()["tasks"]
    assert [(task["protocol"], task["best_ns"]) for task in tasks] == [("graph-cold-l2", 9e4), ("graph-warm-l2", 7e4)]
    title, _, header, _, *lines = database_report(database).to_text().splitlines()
    assert title == "1 task, 2 measurements"
    assert header.split()[:3] == ["task", "evidence", "protocol"]
    assert [line.split()[:3] for line in lines] == [
        [TASK.key, "measured", "graph-cold-l2"],
        [TASK.key, "measured", "graph-warm-l2"],
    ]


def finalist(x, time_ns, behind, space=TASK.space):
    task, estimate = replace(TASK, space=space), Estimate(time_ns, time_ns, time_ns)
    return Finalist(task, Config({"x": x}), MEASURED.toolchain, estimate, (time_ns,) * 48, behind)


FINAL = Final(
    finalists=(
        finalist(2, 8e4, (0.0, 0.0)),
        finalist(1, 8.01e4, (-0.0012, 0.003)),
        finalist(0, 9e4, (0.1, 0.2), "aten"),
    ),
    protocol="graph-cold-l2",
    worker="host/gpu0/pid1",
    created_at="2026-11-21T12:00:00+00:00",
    failed=(FailedFinalist(TASK, Config({"x": 7}), "off by 0.3"),),
)


def test_a_database_lists_its_finals(database):
    database.add([measurement(1, 9e4)])
    database.add_final(FINAL)
    (record,) = database_report(database).to_json()["finals"]
    assert record == {
        "problem": TASK.problem.name,
        "device": "H200",
        "protocol": "graph-cold-l2",
        "created_at": "2026-11-21T12:00:00+00:00",
        "leader": {"space": "example", "config": {"x": 2}, "time_ns": 8e4},
        "tie_band": [{"space": "example", "config": {"x": 2}}, {"space": "example", "config": {"x": 1}}],
        "finalists": 3,
        "regret_bound": 0.0012,
        "failed": [{"space": "example", "config": {"x": 7}, "reason": "off by 0.3"}],
    }
    title, body = database_report(database).to_text().split("\n\n")[2:]
    assert title == "1 final"
    header, _, line = body.splitlines()
    assert header.split() == ["final", "leader", "µs", "ties", "regret", "failed", "config"]
    assert line.split() == [f"H200/{TASK.problem.name}", "example", "80.0", "2", "≤", "0.12%", "1", "x=2"]


def test_finals_of_two_protocols_have_a_line_each(database):
    database.add([measurement(1, 9e4)])
    database.add_final(FINAL)
    database.add_final(replace(FINAL, protocol="graph-warm-l2", failed=()))
    title, body = database_report(database).to_text().split("\n\n")[2:]
    assert title == "2 finals"
    assert [line.split()[1] for line in body.splitlines()] == ["protocol", "─" * 13, "graph-cold-l2", "graph-warm-l2"]


def test_a_database_without_finals_lists_none(database):
    database.add([measurement(1, 9e4)])
    assert "final" not in database_report(database).to_text()
    assert database_report(database).to_json()["finals"] == []


def test_a_table_shows_its_tie_band_and_the_regret_bound_of_a_final():
    header, _, line = table_report(table(0.0012)).to_text().split("\n\n")[1].splitlines()
    assert header.split()[-3:] == ["ties", "regret", "config"]
    assert line.endswith("   2  ≤ 0.12%")
    (row,) = table_report(table(0.0012)).to_json()["rows"]
    assert (row["ties"], row["regret_bound"]) == (2, 0.0012)


def test_table_without_finals_has_no_regret_column():
    assert "regret" not in table_report(table(None)).to_text()
    assert table_report(table(None)).to_json()["rows"][0]["regret_bound"] is None


def test_the_header_of_a_table_names_the_driver_beside_the_versions():
    shown = table_report(replace(table(None), drivers=("575.51", "580.95.05")))
    assert shown.to_text().splitlines()[1].endswith("driver 575.51, driver 580.95.05")
    assert shown.to_json()["drivers"] == ["575.51", "580.95.05"]


def test_the_header_of_a_table_names_its_margin_and_the_date_of_its_newest_measurement():
    shown = table_report(replace(table(None), margin=0.05, measured_at="2026-11-23"))
    assert shown.to_text().splitlines()[0].endswith(", margin 5.0%, measured up to 2026-11-23")
    assert (shown.to_json()["margin"], shown.to_json()["measured_at"]) == (0.05, "2026-11-23")
    assert table_report(table(None)).to_text().splitlines()[0].endswith(", margin 2.0%")
