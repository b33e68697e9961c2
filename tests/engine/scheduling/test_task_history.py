"""A campaign is taught by what its database holds of other tasks, the same however often it goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.campaign import execute as session
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.scheduling.task_history import teach
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.embedded import embedded

H200 = catalogue.device("H200")
DECODE, WIDE = Problem.parse("16x4096x4096"), Problem.parse("16x28672x4096")
LATENCY = registry.objective("latency")


@pytest.fixture(scope="module")
def recorded():
    return tuple(x for x in session.read_all(embedded()) if x.problem in (DECODE, WIDE))


def searched(problem, recorded, sampler="transfer"):
    plan = Plan(problems=(problem,), sampler=sampler, budget=12)
    [_, search] = session.replayed_searches(plan, H200, recorded)
    return search


def measure(search, executor, database, count):
    for config in search.tuner._sampler.search.feasible[:count]:
        executor.submit(search.task, config)
    database.add(executor.collect(0.0))


def history(search):
    return search.tuner._sampler.search.history


def test_what_was_measured_of_other_tasks_is_taught(tmp_path, recorded):
    executor, search = ReplayExecutor(recorded), searched(WIDE, recorded)
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        teach([search], executor, database, LATENCY)
        [past] = history(search)
    assert len(past.trials) == 20
    point = recorded_point(recorded, DECODE, past.trials[0].config)
    assert past.trials[0].score == point.time_ns
    assert past.features(past.trials[0].config)["problem n"] == 12.0


def recorded_point(recorded, problem, config):
    landscapes = (x for x in recorded if x.problem == problem and x.context["space"] == "triton_mm")
    return next(landscapes).points[config]


def test_what_the_campaign_measures_itself_is_not(tmp_path, recorded):
    executor, searches = ReplayExecutor(recorded), [searched(DECODE, recorded), searched(WIDE, recorded)]
    with Database.open(tmp_path / "m.db") as database:
        measure(searches[0], executor, database, 20)
        teach(searches, executor, database, LATENCY)
        assert [history(search) for search in searches] == [(), ()]


def test_another_protocol_teaches_nothing(tmp_path, recorded):
    other = [replace(x, context={**x.context, "protocol": "elsewhere"}) for x in recorded]
    search = searched(WIDE, recorded)
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), ReplayExecutor(other), database, 20)
        teach([search], ReplayExecutor(recorded), database, LATENCY)
        assert history(search) == ()


class Measuring(ReplayExecutor):
    """Answers from recordings as if it had measured."""

    evidence = Evidence.MEASURED

    def protocol(self, task):
        return "graph-cold-l2"


@pytest.mark.parametrize(("device", "taught"), [("H200", 10), ("B200", 0)])
def test_who_measures_is_taught_what_ships_for_the_same_kind_of_gpu(tmp_path, recorded, device, taught):
    [_, search] = session.measured_searches(Plan(problems=(WIDE,), budget=12), catalogue.device(device))
    with Database.open(tmp_path / "m.db") as database:
        teach([search], Measuring(recorded), database, LATENCY)
        assert len(history(search)) == taught
        assert sum(len(past.trials) for past in history(search)) == (25851 if taught else 0)


def test_times_teach_nothing_of_energy(tmp_path, recorded):
    [_, search] = session.measured_searches(Plan(problems=(WIDE,), budget=12), H200)
    with Database.open(tmp_path / "m.db") as database:
        teach([search], Measuring(recorded), database, registry.objective("energy"))
        assert history(search) == ()


def test_samplers_that_do_not_learn_are_left_as_they_are(tmp_path, recorded):
    executor, search = ReplayExecutor(recorded), searched(WIDE, recorded, "evolution")
    tuner = search.tuner
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        teach([search], executor, database, LATENCY)
    assert search.tuner is tuner


def test_nothing_is_read_before_a_search_asks(tmp_path, recorded, monkeypatch):
    executor, search = ReplayExecutor(recorded), searched(WIDE, recorded)
    read = []
    with Database.open(tmp_path / "m.db") as database:
        measure(searched(DECODE, recorded), executor, database, 20)
        real = database.tasks
        monkeypatch.setattr(database, "tasks", lambda: read.append("tasks") or real())
        teach([search], executor, database, LATENCY)
        assert not read
        assert len(history(search)) == len(search.history) == 1
        assert read == ["tasks"]  # once for all
