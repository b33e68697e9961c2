from __future__ import annotations

import random
from math import comb, inf, nan
from statistics import median

import pytest

from gemmtune.engine.measure.statistics import FULL_COVERAGE_SAMPLES, median_interval


def test_one_sample_is_its_own_interval():
    assert median_interval([12.5]) == (12.5, 12.5, 12.5)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 6, 7, 8])
def test_up_to_eight_samples_give_minimum_to_maximum(count):
    samples = [float(x) for x in range(count, 0, -1)]
    assert median_interval(samples) == (median(samples), 1.0, count)


# Ranks as printed in tables of the distribution-free 95 % interval of a median.
@pytest.mark.parametrize(("count", "rank"), [(9, 2), (11, 2), (12, 3), (20, 6), (25, 8), (50, 18), (100, 40)])
def test_ends_are_the_published_order_statistics(count, rank):
    samples = [float(x) for x in range(1, count + 1)]
    random.Random(count).shuffle(samples)
    assert median_interval(samples) == (median(samples), rank, count + 1 - rank)


def test_six_samples_are_the_fewest_that_cover_95_percent():
    def coverage(count):
        return 1 - 2 * comb(count, 0) / 2**count

    assert coverage(FULL_COVERAGE_SAMPLES) == pytest.approx(0.96875)
    assert coverage(FULL_COVERAGE_SAMPLES - 1) == pytest.approx(0.9375)


def test_interval_covers_the_true_median_of_a_skewed_distribution():
    draw = random.Random(7)
    covered = 0
    for _ in range(2000):
        _, low, high = median_interval([draw.expovariate(1.0) for _ in range(25)])
        covered += low <= 0.6931 <= high
    assert 0.95 <= covered / 2000 <= 0.98  # exact: 95.7 %


def test_an_outlier_moves_nothing():
    samples = [100.0 + i for i in range(21)]
    assert median_interval([*samples[:-1], 1e9])[:2] == median_interval(samples)[:2]
    assert median_interval([*samples[:-1], 1e9])[2] == median_interval(samples)[2]


@pytest.mark.parametrize("samples", [[], [1.0, nan], [inf]])
def test_nothing_and_no_number_are_refused(samples):
    with pytest.raises(ValueError, match=r"no samples|not finite"):
        median_interval(samples)
