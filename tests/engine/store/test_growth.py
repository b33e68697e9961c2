"""Questions about a large database are answered by indexes, not by reading its measurements."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.report.database import database_report
from gemmtune.engine.store import serialization
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import Merged, merge
from gemmtune.engine.testing.objective_conformance import example_measurement

EXAMPLE = example_measurement()
INDEXES = {"measurements_by_kind", "finals_by_problem", "measurements_with_energy"}


def fill(database, tasks, configs=3):
    """Add measurements whose second config is the fastest of each task, and one failure per task."""
    for m in range(1, tasks + 1):
        task = replace(EXAMPLE.task, problem=replace(EXAMPLE.task.problem, m=m))
        times = [9e4, *[8e4] * (configs - 1)]
        ok = [
            replace(EXAMPLE, task=task, config=Config({"x": x}), estimate=Estimate(ns, ns, ns), energy_joules=None)
            for x, ns in enumerate(times)
        ]
        failed = replace(ok[0], config=Config({"x": -1}), status=Status.RUN_FAILED, estimate=None, reason="crashed")
        database.add([*ok, failed])


def indexes(path):
    with closing(sqlite3.connect(path)) as connection:
        return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'index'")}


@pytest.fixture
def statements():
    found = []

    def note(connection, cursor, statement, parameters, context, many):
        found.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


@pytest.fixture
def decoded(monkeypatch):
    """Rows that became measurements."""
    found, inner = [], serialization.measurement_of
    monkeypatch.setattr(
        serialization, "measurement_of", lambda row, *of, **by: (found.append(row), inner(row, *of, **by))[1]
    )
    return found


def test_show_asks_as_much_of_many_tasks_and_reads_one_measurement_of_each(tmp_path, statements, decoded):
    asked = {}
    for tasks in (5, 20):
        with Database.open(tmp_path / f"{tasks}.db") as database:
            fill(database, tasks)
            statements.clear()
            decoded.clear()
            found: Any = database_report(database).to_json()["tasks"]
        asked[tasks] = len(statements)
        assert len(decoded) == tasks
        assert [(each["evaluations"], each["failures"]) for each in found] == [(4, {"run_failed": 1})] * tasks
        assert [(each["best_ns"], each["best_config"]) for each in found] == [
            (8e4, {"x": 1})
        ] * tasks  # the first of two
    assert asked[5] == asked[20]


def test_counts_finals_and_energies_are_answered_by_indexes(tmp_path, statements):
    path = tmp_path / "m.db"
    with Database.open(path) as database:
        fill(database, 2)
        statements.clear()
        database.counts()
        database.fastest_of_each()
        database.finals(EXAMPLE.task.problem)
        list(database.measurements_with_energy())
    with closing(sqlite3.connect(path)) as connection:
        for name, index in (
            ("count(*)", "measurements_by_kind"),
            ("JOIN", "measurements_by_kind"),
            ("finals", "finals_by"),
            ("energy_joules IS NOT NULL", "measurements_with_energy"),
        ):
            statement, parameters = next(each for each in statements if name in each[0])
            plan = connection.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()
            assert any(f"INDEX {index}" in row[-1] for row in plan), plan


def test_a_database_of_an_older_version_gets_its_indexes_from_the_next_writer(tmp_path):
    path = tmp_path / "m.db"
    with Database.open(path) as database:
        fill(database, 2)
        report = database_report(database).to_text()
    with closing(sqlite3.connect(path)) as connection:
        for index in INDEXES:
            connection.execute(f"DROP INDEX {index}")
    with Database.open(path, read_only=True) as database:
        assert database_report(database).to_text() == report
    assert not INDEXES & indexes(path)
    Database.open(path).close()
    assert indexes(path) >= INDEXES


def test_a_merge_of_nothing_new_reads_no_measurement(tmp_path, decoded):
    with Database.open(tmp_path / "a.db") as source, Database.open(tmp_path / "b.db") as target:
        fill(source, 3)
        fill(target, 1, configs=2)
        assert merge(target, source) == Merged(12, 9, 0, 0)
        assert len(decoded) == 9
        decoded.clear()
        assert merge(target, source) == Merged(12, 0, 0, 0)
        assert decoded == []
        assert {m.task: m.config for m in target.measurements()}.keys() == set(source.tasks())
