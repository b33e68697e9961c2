"""The tasks of a campaign teach each other once, and what is taught depends on nothing but results."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from gemmtune.engine.campaign import execute as session
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.search import Past
from gemmtune.engine.scheduling.exchange import FIRST, Exchange
from gemmtune.engine.scheduling.scheduler import run
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.search.models import transfer_model as lessons
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.embedded import embedded

H200 = catalogue.device("H200")
PROBLEMS = tuple(Problem.parse(name) for name in ("16x4096x4096", "16x28672x4096", "128x2880x2880"))
LATENCY = registry.objective("latency")


@pytest.fixture(scope="module")
def recorded():
    return tuple(x for x in session.read_all(embedded()) if x.problem in PROBLEMS)


def searches(recorded, budget=16, sampler="transfer", problems=PROBLEMS):
    plan = Plan(problems=problems, sampler=sampler, budget=budget)
    return session.replayed_searches(plan, H200, recorded)


class Deaf:
    """Watches, and takes no notice."""

    def __getattr__(self, name):
        return lambda *heard, **known: None


class Shuffled(ReplayExecutor):
    """Several workers, and answers in any order, some later."""

    parallel = 2

    def __init__(self, recorded, seed):
        super().__init__(recorded)
        self.random = random.Random(seed)
        self.held = []

    def collect(self, timeout_seconds):
        self.held += super().collect(timeout_seconds)
        self.random.shuffle(self.held)
        count = self.random.randrange(len(self.held) + 1)
        finished, self.held = self.held[:count], self.held[count:]
        return finished


def asked(found):
    return {search.task.key: [trial.config.json for trial in search.tuner.trials] for search in found}


def campaign(path, executor, found, **terms):
    with Database.open(path) as database:
        run(found, executor, database, LATENCY, Deaf(), **terms)
    return asked(found)


def spied(monkeypatch, found):
    """Who was taught what, in order."""
    taught = []
    for search in found:
        learn = search.tuner.learn

        def spy(pasts, task=search.task, learn=learn):
            taught.append((task, [(past.trials, past.describe(past.trials[0].config)) for past in pasts]))
            learn(pasts)

        monkeypatch.setattr(search.tuner, "learn", spy)
    return taught


def test_each_task_is_taught_the_first_evaluations_of_the_others(tmp_path, monkeypatch, recorded):
    found = searches(recorded)
    taught = spied(monkeypatch, found)
    campaign(tmp_path / "m.db", ReplayExecutor(recorded), found)
    learners = [search for search in found if search.task.space == "triton_mm"]
    assert Counter(task for task, _ in taught) == Counter(search.task for search in learners)  # each once
    first = {search.task: search.tuner.trials[:FIRST] for search in learners}
    for task, pasts in taught:
        assert [trials for trials, _ in pasts] == [first[other] for other in first if other != task]
        assert all(known["waves"] >= 0 for _, known in pasts)
        assert all(trial.resources for trials, _ in pasts for trial in trials)


def test_neither_order_nor_number_of_workers_nor_a_kill_changes_what_is_asked(tmp_path, recorded):
    calm = campaign(tmp_path / "calm.db", ReplayExecutor(recorded), searches(recorded))
    assert campaign(tmp_path / "wild.db", Shuffled(recorded, 1), searches(recorded)) == calm

    class KilledError(Exception):
        pass

    class Dying(Shuffled):
        def collect(self, timeout_seconds):
            if self.random.random() < 0.15:
                raise KilledError
            return super().collect(timeout_seconds)

    for seed in range(40):
        try:
            killed = campaign(tmp_path / "killed.db", Dying(recorded, seed), searches(recorded))
            break
        except KilledError:
            continue
    assert killed == calm


def test_what_is_taught_changes_what_is_asked(tmp_path, recorded):
    together = campaign(tmp_path / "together.db", ReplayExecutor(recorded), searches(recorded))
    for problem in PROBLEMS:
        alone = campaign(tmp_path / "alone.db", ReplayExecutor(recorded), searches(recorded, problems=(problem,)))
        for key, configs in alone.items():
            assert together[key][:FIRST] == configs[:FIRST]
            if "triton_mm" in key:
                assert together[key] != configs


def test_a_search_that_ends_before_keeps_nobody_waiting(tmp_path, recorded):
    found = [*searches(recorded, problems=PROBLEMS[:2]), *searches(recorded, budget=3, problems=PROBLEMS[2:])]
    campaign(tmp_path / "m.db", ReplayExecutor(recorded), found)
    assert [s.tuner.evaluations for s in found if s.task.space == "triton_mm"] == [16, 16, 3]


def test_when_time_is_over_those_who_wait_end_too(tmp_path, recorded):
    clock = iter(range(1000))
    found = searches(recorded)
    campaign(
        tmp_path / "m.db", ReplayExecutor(recorded), found, limits=Limits(seconds=8), now=lambda: float(next(clock))
    )
    assert all(search.tuner.evaluations < 16 for search in found)
    assert not any(search.batch for search in found)


def test_who_began_with_a_history_does_not_wait(tmp_path, monkeypatch, recorded):
    found = searches(recorded)
    for search in found:
        if search.sampler.learns:
            search.teach(lambda: (Past(()),))
    taught = spied(monkeypatch, found)
    campaign(tmp_path / "m.db", ReplayExecutor(recorded), found)
    assert taught == []


def test_samplers_that_do_not_learn_do_not_wait(recorded):
    found = searches(recorded, sampler="evolution")
    exchange = Exchange(found, lambda task: "any")
    assert not any(exchange.holds(search) for search in found)
    assert exchange.released() == []


def test_what_others_hear_of_is_enough_for_a_lesson():
    assert lessons._LEAST == FIRST
