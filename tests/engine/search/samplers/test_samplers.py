from __future__ import annotations

import importlib.util
import logging
import math
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from itertools import product
from types import SimpleNamespace

import optuna
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.evolution import EvolutionSampler
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler
from gemmtune.engine.search.samplers.optuna_samplers import (
    CmaesSampler,
    GpSampler,
    Nsga2Sampler,
    OptunaSampler,
    TpeSampler,
)
from gemmtune.engine.search.samplers.random import RandomSampler
from gemmtune.engine.search.samplers.transfer import TransferSampler
from gemmtune.engine.testing import sampler_conformance

pytestmark = pytest.mark.slow(18)

GP = pytest.param(
    GpSampler, marks=pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="sampler gp needs torch")
)
LEARNERS = (CmaesSampler, EvolutionSampler, GP, Nsga2Sampler, TpeSampler, TransferSampler)
NAMES = [pytest.param(name, marks=GP.marks) if name == "gp" else name for name in registry.names(Sampler)]
PARAMS = (
    Param("m", (16, 32, 64, 128, 256)),
    Param("n", (16, 32, 64, 128, 256)),
    Param("k", (16, 32, 64, 128, 256)),
    Param("stages", (2, 3, 4, 5, 6)),
    Param("warps", (1, 2, 4, 8)),
    Param("order", ("row", "column"), ordered=False),
)


def fits(config):
    m, n, k, stages = (config.integer(name) for name in ("m", "n", "k", "stages"))
    return 2 * (m + n) * k * stages <= 200_000 and m * n >= 512 and m * n // config.integer("warps") <= 16_384


def configs():
    names = [param.name for param in PARAMS]
    points = (Config(dict(zip(names, values, strict=True))) for values in product(*(p.values for p in PARAMS)))
    return tuple(config for config in points if fits(config))


FEASIBLE = configs()


def search(budget=64, seed=3, seeds=(), objectives=1):
    return Search(PARAMS, FEASIBLE, seeds, budget, seed, objectives)


def off(config, **best):
    return sum(abs(math.log2(config.integer(name) / value)) for name, value in best.items())


def cost(config):
    """A GEMM in caricature, in ns: best at 128x256x64 in columns, with 4 stages and 8 warps."""
    return 1e5 * (1 + 0.2 * off(config, m=128, n=256, k=64, stages=4, warps=8) + 0.1 * (config["order"] == "row"))


def energy(config):
    """In joules: best at 64x256x32 in columns, with 3 stages and 4 warps."""
    return 0.03 * (1 + 0.2 * off(config, m=64, n=256, k=32, stages=3, warps=4) + 0.1 * (config["order"] == "row"))


def trial(config):
    return Trial(config, Status.OK, cost(config))


def pair(config):
    return Trial(config, Status.OK, cost(config), (cost(config), energy(config)))


def hypervolume(asked):
    """Share of the box under twice the best cost and energy that a search's results dominate."""
    volume, height = 0.0, 2.0
    for x, y in sorted((cost(config) / 1e5, energy(config) / 0.03) for config in asked):
        if y < height and x < 2:
            volume, height = volume + (2 - x) * (height - y), y
    return volume


def run(sampler, evaluations, batch=1, outcome=trial):
    asked = []
    while len(asked) < evaluations:
        those = sampler.ask(min(batch, evaluations - len(asked)))
        sampler.tell([outcome(config) for config in those])
        asked += those
    return asked


OF_OPTUNA = ("exhausts_the_feasible_set", "searches_without_seeds", "resumes_from_a_database")
"""Checks of what sampler gp, whose proposals take 0.1 s each, has from the base class that it shares with tpe."""


@pytest.mark.parametrize("check", sampler_conformance.CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", [name for name in registry.names(Sampler) if name != "gp"])
def test_registered_sampler_keeps_its_contract(name, check):
    check(registry.sampler(name))


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="sampler gp needs torch")
@pytest.mark.parametrize("check", [check for check in sampler_conformance.CHECKS if check.__name__ not in OF_OPTUNA])
def test_sampler_gp_keeps_its_contract(check):
    check(GpSampler)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("transfer", "auto")])  # they begin in fours
def test_sampler_that_does_not_learn_fills_its_batch_while_configs_are_left(name):
    sampler = registry.sampler(name)(search())
    assert [len(sampler.ask(n)) for n in (1, 5, 16)] == [1, 5, 16]


def test_samplers_ask_the_same_in_another_process():
    names = [name for name in registry.names(Sampler) if name != "gp"]  # gp: torch takes seconds to import
    script = f"""if True:
        from gemmtune.engine.records.config import Config, Param
        from gemmtune.engine.records.measurement import Status, Trial
        from gemmtune.engine.records.search import Search
        from gemmtune.engine.seams import registry
        kinds = Param("kind", ("n", "t", "c"), ordered=False)
        params = (Param("tile", (1, 2, 4, 8, 16)), kinds, Param("warps", (1, 2, 4)))
        points = (Config(dict(tile=t, kind=k, warps=w)) for t in (1, 2, 4, 8, 16) for k in "ntc" for w in (1, 2, 4))
        search = Search(params, tuple(c for c in points if c["tile"] * c["warps"] < 40), (), 30, 5)
        for name in {names!r}:
            sampler = registry.sampler(name)(search)
            for _ in range(6):
                asked = sampler.ask(4)
                sampler.tell([Trial(config, Status.OK, 1.0 + int(config.digest[:4], 16)) for config in asked])
                print(name, *(config.json for config in asked))
        """
    environment = {**os.environ, "PYTHONHASHSEED": "1"}
    command = [sys.executable, "-c", script]
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    with redirect_stdout(StringIO()) as here:
        exec(script, {})
    assert there == here.getvalue()
    assert len(there.splitlines()) == len(names) * 6


@pytest.mark.parametrize("sampler", [RandomSampler, *LEARNERS])
def test_another_seed_asks_another_sequence(sampler):
    assert run(sampler(search(seed=1)), 8) != run(sampler(search(seed=2)), 8)


@pytest.mark.parametrize("seed", [0, 2**40, 2**63 - 1])
def test_samplers_take_seeds_of_any_size(seed):
    for sampler in (TpeSampler, RandomSampler, EvolutionSampler):
        assert len(sampler(search(seed=seed)).ask(2)) == 2


@pytest.mark.parametrize("sampler", LEARNERS)
def test_learners_start_from_the_seeds_best_guess_first(sampler):
    seeds = (FEASIBLE[500], FEASIBLE[3], FEASIBLE[900])
    assert run(sampler(search(seeds=seeds)), 3) == list(seeds)


@pytest.mark.parametrize("sampler", [RandomSampler, ExhaustiveSampler])
def test_random_and_exhaustive_ignore_the_seeds(sampler):
    assert run(sampler(search(seeds=FEASIBLE[500:510])), 12) == run(sampler(search()), 12)


def test_seeds_take_no_more_than_a_quarter_of_the_budget():
    def initial(**terms):
        return RandomSampler(search(**terms)).initial_configs()

    assert initial(budget=32, seeds=FEASIBLE[:20]) == list(FEASIBLE[:8])
    assert initial(budget=1, seeds=FEASIBLE[:20]) == [FEASIBLE[0]]
    assert initial(budget=64, seeds=(FEASIBLE[1], FEASIBLE[0], FEASIBLE[1])) == [FEASIBLE[1], FEASIBLE[0]]
    assert initial() == []


def test_exhaustive_follows_the_order_of_enumeration():
    assert run(ExhaustiveSampler(search()), 40, batch=16) == list(FEASIBLE[:40])


@pytest.mark.parametrize(("batch", "reached"), [(1, 0.95), (16, 0.9)])
def test_evolution_finds_what_random_does_not(batch, reached):
    def found(sampler):
        return sum(min(map(cost, run(sampler(search(seed=seed)), 64, batch))) for seed in range(5)) / 5

    optimum = min(map(cost, FEASIBLE))
    assert optimum / found(EvolutionSampler) > reached > optimum / found(RandomSampler)


def test_evolution_needs_a_third_of_the_evaluations_of_random_search():
    def found(sampler, evaluations):
        return sum(min(map(cost, run(sampler(search(seed=seed)), evaluations))) for seed in range(8)) / 8

    assert found(EvolutionSampler, 16) < found(RandomSampler, 48)


def test_evolution_continues_to_the_last_config():
    few = Search(PARAMS, FEASIBLE[:40], (), 40, 0)
    assert set(run(EvolutionSampler(few), 40)) == set(FEASIBLE[:40])


def test_evolution_begins_in_the_middle_of_the_space():
    [first] = EvolutionSampler(search()).ask(1)
    apart = [abs(param.values.index(first[param.name]) - (len(param.values) - 1) / 2) for param in PARAMS]
    assert max(apart) <= 1


def test_evolution_starts_anew_after_64_results_without_an_improvement():
    running = EvolutionSampler(search(budget=100))
    run(running, 65, outcome=lambda config: Trial(config, Status.OK, 1.0))  # the first result is the best of all
    assert not running._model._outcomes
    drawn = running.ask(16)
    running.tell([trial(config) for config in drawn])
    assert len(running._model._outcomes) == 16
    assert len(running.ask(1)) == 1


@pytest.mark.parametrize("sampler", [CmaesSampler, Nsga2Sampler, TpeSampler])
def test_optuna_learns_from_the_measured_configs(sampler):
    later = [cost(config) for config in run(sampler(search(budget=96)), 96)[-32:]]
    everywhere = [cost(config) for config in FEASIBLE]
    assert sum(later) / len(later) < 0.85 * sum(everywhere) / len(everywhere)


@pytest.mark.parametrize("sampler", [CmaesSampler, GP, Nsga2Sampler, TpeSampler])
def test_completed_trials_of_the_study_are_the_configs_measured(sampler):
    running: OptunaSampler = sampler(search(budget=14))  # models guide gp and tpe from the 11th on
    asked = run(running, 14, batch=3)
    encoding = running._encoding
    learned = [t for t in running._study.get_trials(deepcopy=False) if t.state is optuna.trial.TrialState.COMPLETE]
    points = [[t.params[name] for name in encoding.names] for t in learned]
    assert points == [encoding.points[encoding.position(config)].tolist() for config in asked]
    assert [t.value for t in learned] == [math.log(cost(config)) for config in asked]


@pytest.mark.parametrize(
    ("sampler", "key"), [(CmaesSampler, "cma:generation"), (Nsga2Sampler, "NSGAIISampler:generation")]
)
def test_projected_trials_count_in_their_generation(sampler, key):
    running: OptunaSampler = sampler(search(budget=64))
    run(running, 64)
    learned = [t for t in running._study.get_trials(deepcopy=False) if t.state is optuna.trial.TrialState.COMPLETE]
    projected = [t for t in learned if "fixed_params" in t.system_attrs]
    assert len(projected) > 10
    assert all(key in t.system_attrs for t in projected if t.number > 2)
    assert max(t.system_attrs.get(key, 0) for t in learned) >= 4


def test_failures_count_as_the_worst_score_once_a_config_worked():
    sampler = TpeSampler(search())
    outcomes = iter([None, 5e4, 2e5, None])

    def outcome(config):
        score = next(outcomes)
        return Trial(config, Status.RUN_FAILED if score is None else Status.OK, score)

    run(sampler, 4, outcome=outcome)
    values = [t.value for t in sampler._study.get_trials(deepcopy=False) if t.state is optuna.trial.TrialState.COMPLETE]
    assert values == [math.log(5e4), math.log(2e5), math.log(2e5)]


def test_the_samplers_for_several_objectives():
    several = [name for name in registry.names(Sampler) if registry.sampler(name).multi_objective]
    assert several == ["auto", "exhaustive", "gp", "nsga2", "random", "tpe"]


@pytest.mark.parametrize("sampler", [GP, Nsga2Sampler, TpeSampler])
def test_optuna_learns_every_score(sampler):
    running: OptunaSampler = sampler(search(budget=12, objectives=2))
    asked = run(running, 12, batch=3, outcome=pair)
    learned = [t for t in running._study.get_trials(deepcopy=False) if t.state is optuna.trial.TrialState.COMPLETE]
    assert [t.values for t in learned] == [[math.log(cost(c)), math.log(energy(c))] for c in asked]


def test_failures_count_as_the_worst_of_each_score():
    sampler = TpeSampler(search(objectives=2))
    outcomes = iter([(2e5, 0.1), (5e4, 0.3), None])

    def outcome(config):
        scores = next(outcomes)
        return Trial(config, Status.OK, scores[0], scores) if scores else Trial(config, Status.RUN_FAILED, None)

    run(sampler, 3, outcome=outcome)
    values = [t.values for t in sampler._study.get_trials(deepcopy=False) if t.values is not None]
    assert values[-1] == [math.log(2e5), math.log(0.3)]


@pytest.mark.parametrize("sampler", [Nsga2Sampler, TpeSampler])
def test_multi_objective_samplers_find_a_better_front_than_random(sampler):
    def found(kind):
        searches = (kind(search(budget=96, seed=seed, objectives=2)) for seed in range(2))
        return sum(hypervolume(run(each, 96, outcome=pair)) for each in searches) / 2

    assert found(sampler) / hypervolume(FEASIBLE) > 0.8 > found(RandomSampler) / hypervolume(FEASIBLE)


def test_samplers_say_whether_they_learn_from_other_tasks_and_search_fronts():
    kinds = {name: registry.sampler(name) for name in registry.names(Sampler)}
    assert {name for name, kind in kinds.items() if kind.learns} == {"auto", "transfer"}
    of_fronts = {name for name, kind in kinds.items() if kind.multi_objective}
    assert of_fronts == {"auto", "exhaustive", "gp", "nsga2", "random", "tpe"}


def test_gp_asks_on_one_thread_of_torch_and_gives_the_others_back(monkeypatch):
    threads, during = [4], []
    torch = SimpleNamespace(__spec__=sys.__spec__, get_num_threads=lambda: threads[-1], set_num_threads=threads.append)
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(OptunaSampler, "ask", lambda self, count: during.append((count, threads[-1])))
    GpSampler(search()).ask(3)
    assert (during, threads) == ([(3, 1)], [4, 1, 4])


def test_gp_without_torch_names_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ToolchainMissing, match=r"gp needs torch: pip install .*\[triton\]"):
        GpSampler(search())


def test_optuna_is_silenced_and_its_settings_are_restored(capfd):
    optuna.logging.set_verbosity(logging.DEBUG)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            TpeSampler(search())
        assert optuna.logging.get_verbosity() == logging.DEBUG
        assert capfd.readouterr().err == ""
    finally:
        optuna.logging.set_verbosity(logging.INFO)
