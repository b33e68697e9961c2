"""What a search may still gain is told from its best few, and holds on recorded landscapes."""

from __future__ import annotations

import math
import random
from statistics import mean

import pytest

from gemmtune.engine.scheduling.expectation import expected_gain, regret_bound

STEP = 0.01
"""Each of these times is one per cent above the one before."""
TIMES = [100 * math.exp(STEP * place) for place in range(20)]
SCALE = STEP * (1 + 2 + 3 + 4 + 5) / 5  # the mean distance of the best five from the sixth


def test_the_bound_is_the_scale_of_the_best_times_the_logarithm_of_what_is_left():
    assert regret_bound(TIMES, 20, 80) == pytest.approx(4**SCALE - 1)
    assert regret_bound(reversed(TIMES), 20, 80) == regret_bound(TIMES[:6], 20, 80) == regret_bound(TIMES, 20, 80)


def test_a_batch_is_expected_to_gain_what_the_bound_falls_by():
    gain = expected_gain(TIMES, 20, 10)
    assert gain == pytest.approx(100 * (1 - (20 / 30) ** SCALE))
    assert gain < expected_gain(TIMES, 10, 10)
    assert expected_gain([2 * time for time in TIMES], 20, 10) == pytest.approx(2 * gain)


def test_a_crowd_of_equals_leaves_nothing_to_gain():
    assert regret_bound([7.0] * 6, 6, 1000) == 0.0
    assert expected_gain([7.0] * 6, 6, 8) == 0.0


def test_nothing_is_left_where_all_has_been_evaluated():
    assert regret_bound([], 3, 3) == 0.0
    assert regret_bound(TIMES, 20, 20) == 0.0


def test_of_too_few_nothing_can_be_said_and_what_keeps_failing_is_not_tried_forever():
    assert regret_bound(TIMES[:5], 31, 1000) == math.inf
    assert expected_gain(TIMES[:5], 31, 8) == math.inf
    assert expected_gain(TIMES[:5], 32, 8) == 0.0


def test_of_an_exponential_tail_the_expected_gain_is_what_is_gained_on_average():
    chance = random.Random(20261121)
    expected, found = [], []
    for _ in range(4000):
        times = [math.exp(-chance.expovariate(1 / 0.02)) for _ in range(96)]
        expected.append(expected_gain(times[:64], 64, 32) / min(times[:64]))
        found.append(1 - min(times) / min(times[:64]))
    assert mean(found) == pytest.approx(0.02 * math.log(1.5), rel=0.05)
    assert mean(expected) == pytest.approx(mean(found), rel=0.05)
