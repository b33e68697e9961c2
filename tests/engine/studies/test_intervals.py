"""Intervals of a mean hold it as often as they say."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

import gemmtune as gt
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.seams import registry
from gemmtune.engine.studies.intervals import mean_interval


def coverage(draw, truth: float, seeds: int) -> float:
    low, high = mean_interval(draw((seeds, 20_000)), 10)
    return float(np.mean((low <= truth) & (truth <= high))) / float(np.mean(~np.isnan(low)))


@pytest.mark.parametrize("seeds", [5, 10, 20])
def test_nineteen_of_twenty_intervals_hold_the_mean(seeds):
    rng = np.random.default_rng(seeds)
    assert 0.93 < coverage(lambda shape: rng.beta(6, 4, shape), 0.6, seeds) < 0.97
    assert 0.93 < coverage(lambda shape: rng.uniform(0, 1, (10, *shape)).mean(axis=0), 0.5, seeds) < 0.97
    rng = np.random.default_rng(seeds)  # skewed, as searches near the optimum are
    assert coverage(lambda shape: rng.beta(9, 1.5, shape), 9 / 10.5, seeds) > 0.93


def test_equal_shifts_and_mirrors_keep_the_interval():
    values = np.array([0.2, 0.5, 0.9, 0.95, 0.99])
    low, high = mean_interval(values, 10)
    assert mean_interval(values + 3, 10) == pytest.approx((low + 3, high + 3))
    assert mean_interval(-values, 10) == pytest.approx((-high, -low))
    even = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 10)
    assert even == pytest.approx((3 - 2.776445 * 0.5**0.5, 3 + 2.776445 * 0.5**0.5))  # Student's, without a skew


@pytest.mark.parametrize(("landscapes", "least"), [(1, 8), (4, 8), (5, 4)])
def test_searches_that_are_mostly_alike_give_no_interval(landscapes, least):
    for different in (least - 1, least):
        values = np.array([0.0] * (10 - different) + [i / 10 for i in range(different)])
        assert np.isnan(mean_interval(values, landscapes)).tolist() == [different < least] * 2
    assert np.isnan(mean_interval(np.arange(4.0), landscapes)).all()  # too few seeds
    own, alike = np.arange(10.0), np.ones(10)
    assert np.isnan(mean_interval(own, landscapes, ends=alike)).all() == (landscapes < 5)


def test_random_search_finds_what_it_is_expected_to_on_every_landscape():
    held = []
    for task in map(LandscapeSearch, gt.landscapes("h200", space="triton_mm")):
        points = task.landscape.points.values()
        times = np.sort([p.time_ns or np.inf for p in points if p.status is not gt.Status.INVALID])
        kind = registry.sampler("random")
        searches = [task.search(kind, 64, seed=own_seed(seed, task.key)) for seed in range(30)]
        best = np.minimum.accumulate([[t.score or np.inf for t in trials] for trials in searches], axis=1)
        for budget in (4, 16, 64):
            ways = [comb(len(times) - 1 - i, budget - 1) / comb(len(times), budget) for i in range(len(times))]
            exact = float(np.dot(times[0] / times, ways))
            low, high = mean_interval(times[0] / best[:, budget - 1], 1)
            held.append(low <= exact <= high)
            assert low - (high - low) / 2 < exact < high + (high - low) / 2, (task.key, budget)
    assert np.mean(held) > 0.85  # nineteen of twenty, by landscape together
