"""The prior pruner on a hundred configs with known estimates."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate
from gemmtune.engine.search.pruners import prior_pruner
from gemmtune.engine.search.pruners.prior_pruner import PriorPruner

CONFIGS = [Config({"x": x}) for x in range(1000)]


@pytest.fixture(autouse=True)
def asked_anew():
    prior_pruner._estimates.cache_clear()
    yield
    prior_pruner._estimates.cache_clear()


@pytest.fixture
def estimates(monkeypatch):
    """Give every task of the space `priced` these times."""

    def give(times_ns):
        prior = Prior(times_ns, "toy 1.0") if times_ns else Prior(reason="no model")
        monkeypatch.setattr(registry, "space", lambda name: SimpleNamespace(prior=lambda task: prior))

    return give


def task(m=64):
    return Task(Problem(m, 64, 64), catalogue.device("B200"), "priced")


def kept(of=None):
    of = of or task()
    return [config["x"] for config in CONFIGS if PriorPruner().judge(Candidate(of, config), ())]


def test_the_best_quarter_and_a_tenth_of_the_rest_are_kept(estimates):
    estimates({config: 1000.0 + config["x"] for config in CONFIGS})
    found = kept()
    assert found[:250] == list(range(250))
    explored = found[250:]
    assert 50 < len(explored) < 100  # 75 expected
    assert max(explored) > 900  # from all over the rest


def test_the_explored_configs_depend_on_config_and_task_alone(estimates):
    estimates({config: 1000.0 + config["x"] for config in CONFIGS})
    explored = set(kept()[250:])
    assert explored == set(kept()[250:])
    other = set(kept(task(m=128))[250:])
    assert len(explored & other) < 0.3 * len(explored)


def test_configs_as_good_as_the_last_one_kept_are_kept_too(estimates):
    estimates({config: 1000.0 if config["x"] < 400 else 2000.0 for config in CONFIGS})
    assert kept()[:400] == list(range(400))
    assert len(kept()) < 500


def test_a_rejection_names_the_estimate_its_rank_and_the_shares(estimates):
    estimates({config: 1000.0 + config["x"] for config in CONFIGS})
    out = next(x for x in range(300, 1000) if x not in kept())
    verdict = PriorPruner().judge(Candidate(task(), CONFIGS[out]), ())
    assert verdict.rule == "estimate"
    rank = f"estimated at {(1000 + out) / 1e3:.1f} µs, behind {out} of 1000 configs"
    assert verdict.reason == f"{rank}; the best 250 are kept, and 10% of the others"


def test_every_config_is_kept_without_an_estimate(estimates):
    estimates({})
    assert len(kept()) == 1000
    prior_pruner._estimates.cache_clear()
    estimates({CONFIGS[0]: 1.0, CONFIGS[1]: 9.0})
    assert len(kept()) >= 999  # the model knows two of them


def test_a_space_that_is_not_installed_has_no_estimates():
    assert PriorPruner().judge(Candidate(task(), CONFIGS[999]), ())


def test_a_built_config_is_kept(estimates):
    estimates({config: 1000.0 + config["x"] for config in CONFIGS})
    artifact = Artifact("key", "priced", "", "digest", (), None, 0.1, Toolchain(()))
    assert all(PriorPruner().judge(Candidate(task(), config, artifact), ()) for config in CONFIGS)
