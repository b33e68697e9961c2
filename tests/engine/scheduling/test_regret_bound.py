"""The regret bound follows from the best few scores of a search."""

from __future__ import annotations

import math
import random
from statistics import mean

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.stopping import regret_bound
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import DrawnConfigs
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

STEP = 0.01
"""Each of these times is one per cent above the one before."""
TIMES = [100 * math.exp(STEP * place) for place in range(20)]
SCALE = STEP * (1 + 2 + 3 + 4 + 5) / 5  # the mean distance of the best five from the sixth


def test_the_bound_grows_with_the_spread_of_the_best_scores_and_the_configs_left():
    assert regret_bound(TIMES, 20, 80) == pytest.approx(4**SCALE - 1)
    assert regret_bound(reversed(TIMES), 20, 80) == regret_bound(TIMES[:6], 20, 80) == regret_bound(TIMES, 20, 80)


def test_equal_best_scores_give_a_bound_of_zero():
    assert regret_bound([7.0] * 6, 6, 1000) == 0.0


def test_the_bound_is_zero_once_every_config_was_evaluated():
    assert regret_bound([], 3, 3) == 0.0
    assert regret_bound(TIMES, 20, 20) == 0.0


def test_too_few_scores_give_an_infinite_bound():
    assert regret_bound(TIMES[:5], 31, 1000) == math.inf


def test_the_bound_of_an_exponential_tail_is_what_more_configs_gain_on_average():
    chance = random.Random(20261121)
    expected, found = [], []
    for _ in range(4000):
        times = [math.exp(-chance.expovariate(1 / 0.02)) for _ in range(96)]
        expected.append(regret_bound(times[:64], 64, 96))
        found.append(min(times[:64]) / min(times) - 1)
    assert mean(found) == pytest.approx(0.02 * math.log(1.5), rel=0.1)
    assert mean(expected) == pytest.approx(mean(found), rel=0.1)


@pytest.mark.parametrize("size", [20, 10**6])
def test_the_bound_of_a_drawn_space_is_of_the_whole_space(size):
    configs = DrawnConfigs(Config({"BLOCK_M": number}) for number in range(20))
    configs.size = size
    search = TaskSearch(
        Task(Problem(m=64, n=64, k=64), catalogue.device("H200"), "triton_mm"),
        registry.space("triton_mm"),
        lambda: configs,
        ExhaustiveSampler,
        budget=20,
        seed=0,
        batch=20,
    )
    asked = search.next_batch()
    search.tell([Trial(config, Status.OK, time) for config, time in zip(asked, TIMES, strict=True)])
    assert search.done
    assert search.regret_bound == pytest.approx((size / 20) ** SCALE - 1)
