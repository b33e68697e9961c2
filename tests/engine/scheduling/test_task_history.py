"""A campaign learns from other tasks in its database, and the same however often it continues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_history import TaskHistory
from gemmtune.engine.scheduling.task_search import no_history
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

H200 = catalogue.device("H200")
DECODE, WIDE = Problem.parse("16x4096x4096"), Problem.parse("16x28672x4096")
LATENCY = registry.objective("latency")


@pytest.fixture(scope="module")
def recorded():
    return tuple(x for x in read_all(embedded()) if x.problem in (DECODE, WIDE))


def searched(problem, recorded, sampler="transfer", history=no_history):
    plan = Plan(problems=(problem,), sampler=sampler, budget=12)
    [_, search] = replayed_backend(plan, recorded).searches
    search.history = history
    return search


def history_of(database, executor, *own, objective=LATENCY):
    tasks = frozenset(Task(problem, H200, "triton_mm") for problem in own)
    return TaskHistory(database, executor, objective, {"triton_mm": registry.space("triton_mm")}, own=tasks)


def measure(search, executor, database, count):
    search.begin()
    for config in search._sampler.search.feasible[:count]:
        executor.submit(search.task, config)
    database.add(executor.collect(0.0))


def history(search):
    search.begin()
    return search._sampler.search.history


def test_trials_of_other_tasks_in_the_database_reach_the_sampler(tmp_path, recorded):
    executor = ReplayExecutor(recorded)
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        [source] = history(searched(WIDE, recorded, history=history_of(database, executor, WIDE)))
    assert len(source.trials) == 20
    assert source.trials[0].score == recorded_point(recorded, DECODE, source.trials[0].config).time_ns
    assert source.features(source.trials[0].config)["problem n"] == 12.0


def recorded_point(recorded, problem, config):
    landscapes = (x for x in recorded if x.problem == problem and x.context["space"] == "triton_mm")
    return next(landscapes).points[config]


def test_the_campaigns_own_tasks_are_left_out(tmp_path, recorded):
    executor = ReplayExecutor(recorded)
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        own = history_of(database, executor, DECODE, WIDE)
        assert [history(searched(problem, recorded, history=own)) for problem in (DECODE, WIDE)] == [(), ()]


def test_excluded_problems_are_left_out(tmp_path, recorded):
    executor, spaces = ReplayExecutor(recorded), {"triton_mm": registry.space("triton_mm")}
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        found = TaskHistory(database, executor, LATENCY, spaces, own=(), excluded=[DECODE])
        assert found(Task(WIDE, H200, "triton_mm")) == ()


def test_trials_of_another_protocol_are_left_out(tmp_path, recorded):
    other = [replace(x, context={**x.context, "protocol": "elsewhere"}) for x in recorded]
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), ReplayExecutor(other), database, 20)
        found = history_of(database, ReplayExecutor(recorded), WIDE)
        assert found(Task(WIDE, H200, "triton_mm")) == ()


class Measuring(ReplayExecutor):
    """Answers from recordings as if it had measured."""

    evidence = Evidence.MEASURED

    def protocol(self, task):
        return "graph-cold-l2"


@pytest.mark.parametrize(("device", "sources"), [("H200", 10 + 186), ("B200", 0)])
def test_a_campaign_that_measures_learns_from_what_ships_for_its_kind_of_gpu(tmp_path, recorded, device, sources):
    plan = Plan(problems=(WIDE,), budget=12)
    backend = measured_backend(plan, catalogue.device(device), lambda spaces: Measuring(recorded))
    with Database.open(tmp_path / "m.db") as database:
        [_, search] = backend.searches
        search.history = history_of(database, backend.executor, WIDE)
        assert len(history(search)) == sources
        assert sum(len(source.trials) for source in history(search)) == (25851 + 2228 if sources else 0)


@pytest.mark.parametrize(("device", "sources"), [("H200", 162), ("B200", 0)])
def test_a_space_without_landscapes_learns_from_the_shipped_searches(tmp_path, recorded, device, sources):
    with Database.open(tmp_path / "m.db") as database:
        found = history_of(database, Measuring(recorded), WIDE)
        history = found(Task(WIDE, catalogue.device(device), "quack_gemm"))
    assert len(history) == sources
    assert sum(len(source.trials) for source in history) == (1540 if sources else 0)


def test_recorded_times_are_no_history_of_energy(tmp_path, recorded):
    with Database.open(tmp_path / "m.db") as database:
        found = history_of(database, Measuring(recorded), WIDE, objective=registry.objective("energy"))
        assert found(Task(WIDE, H200, "triton_mm")) == ()


def test_a_sampler_that_does_not_learn_gets_no_history(recorded):
    def refused(task):
        raise AssertionError

    assert history(searched(WIDE, recorded, "evolution", refused)) == ()


def test_the_database_is_read_once_and_only_when_a_search_begins(tmp_path, recorded, monkeypatch):
    executor = ReplayExecutor(recorded)
    read = []
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        real = database.tasks
        monkeypatch.setattr(database, "tasks", lambda: read.append("tasks") or real())
        found = history_of(database, executor, WIDE)
        search = searched(WIDE, recorded, history=found)
        assert not read
        assert len(history(search)) == len(found(search.task)) == 1
        assert read == ["tasks"]
