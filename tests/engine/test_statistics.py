from __future__ import annotations

import random
from math import comb, inf, nan
from statistics import median

import numpy as np
import pytest

from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import (
    FULL_COVERAGE_SAMPLES,
    estimate,
    location_interval,
    median_interval,
    outliers,
)


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


def test_an_outlier_does_not_move_the_median():
    samples = [100.0 + i for i in range(21)]
    assert median_interval([*samples[:-1], 1e9])[:2] == median_interval(samples)[:2]
    assert median_interval([*samples[:-1], 1e9])[2] == median_interval(samples)[2]


@pytest.mark.parametrize("samples", [[], [1.0, nan], [inf]])
def test_empty_and_non_finite_samples_are_refused(samples):
    with pytest.raises(ValueError, match=r"no samples|not finite"):
        median_interval(samples)


# The Hodges–Lehmann location.


def walsh_averages(values):
    return sorted((a + b) / 2 for i, a in enumerate(values) for b in values[i:])


def test_location_is_the_median_of_the_walsh_averages():
    draw = random.Random(3)
    for count in range(1, 20):
        values = [draw.gauss(100, 10) for _ in range(count)]
        assert location_interval(values)[0] == pytest.approx(median(walsh_averages(values)), rel=1e-12)


def test_one_value_is_its_own_location_interval():
    assert location_interval([12.5]) == (12.5, 12.5, 12.5)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_too_few_values_for_the_confidence_give_minimum_to_maximum(count):
    values = [float(x**2) for x in range(count, 0, -1)]
    assert location_interval(values)[1:] == (1.0, count**2)
    assert location_interval([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0], 0.99)[1:] == (1.0, 64.0)


# Critical values of the signed-rank statistic as printed in its tables, two-sided; the end is one rank further in.
@pytest.mark.parametrize(
    ("confidence", "count", "critical"),
    [
        *((0.95, count, value) for count, value in [(6, 0), (7, 2), (8, 3), (10, 8), (15, 25), (20, 52), (25, 89)]),
        *((0.99, count, value) for count, value in [(8, 0), (10, 3), (15, 15), (20, 37), (25, 68)]),
    ],
)
def test_interval_ends_are_the_published_walsh_averages(confidence, count, critical):
    values = [1.01**x for x in range(count)]
    averages = walsh_averages(values)
    _, low, high = location_interval(values, confidence)
    assert (low, high) == pytest.approx((averages[critical], averages[-1 - critical]), rel=1e-12)


def test_approximate_ranks_continue_the_exact_ones():
    values = [1.01**x for x in range(26)]
    assert location_interval(values)[1] == pytest.approx(walsh_averages(values)[98 - 1])  # the table's critical value


@pytest.mark.parametrize(("count", "confidence"), [(8, 0.95), (24, 0.95), (32, 0.95), (64, 0.99)])
def test_location_interval_covers_the_truth(count, confidence):
    rng = np.random.default_rng(count)
    covered = []
    for _ in range(2000):
        values = 5 + rng.standard_t(3, count)  # heavier tails than normal
        _, low, high = location_interval(values, confidence)
        covered.append(low <= 5 <= high)
    assert np.mean(covered) == pytest.approx(confidence, abs=0.015)


def test_location_repeats_better_than_the_median_on_samples_of_two_levels():
    rng = np.random.default_rng(1)
    samples = np.where(rng.random((500, 32)) < 0.5, 100.0, 103.0) + rng.normal(0, 0.3, (500, 32))
    locations = [location_interval(row)[0] for row in samples]
    assert np.std(locations) < 0.6 * np.std(np.median(samples, axis=1))


def test_estimate_is_the_location_with_its_interval():
    samples = [101.0, 99.0, 100.0, 102.0, 98.0, 100.5, 99.5, 250.0]
    assert estimate(samples, 0.9) == Estimate(*location_interval(samples, 0.9))
    assert estimate(samples).time_ns == pytest.approx(100.25, abs=0.25)  # unmoved by the 250


@pytest.mark.parametrize("samples", [[], [1.0, nan], [inf]])
def test_a_location_of_empty_or_non_finite_values_is_refused(samples):
    with pytest.raises(ValueError, match=r"no samples|not finite"):
        location_interval(samples)


def test_outliers_are_reported_by_position():
    assert outliers([100.0, 101.0, 99.0, 200.0, 100.5, 99.5, 40.0, 100.0]) == (3, 6)


def test_quantised_samples_are_no_outliers():
    assert outliers([42_016.0] * 9 + [42_048.0, 41_984.0]) == ()
    assert outliers([42_016.0] * 9 + [42_300.0]) == (9,)


def test_five_samples_are_the_fewest_with_an_outlier():
    assert outliers([100.0, 100.0, 900.0, 100.0, 100.0]) == (2,)


@pytest.mark.parametrize(("off", "found"), [(0.0049, ()), (0.0051, (4,))])
def test_an_outlier_is_five_deviations_from_the_median_of_a_thousandth_at_least(off, found):
    assert outliers([100.0, 100.0, 100.0, 100.0, 100.0 * (1 + off), 100.0]) == found


@pytest.mark.parametrize(("off", "found"), [(7.4, ()), (7.42, (4,))])
def test_a_deviation_is_1_4826_times_the_median_distance(off, found):
    assert outliers([99.0, 101.0, 99.0, 101.0, 100.0 + off, 100.0, 100.0]) == found


def test_too_few_samples_have_no_outliers():
    assert outliers([100.0, 100.0, 100.0, 900.0]) == ()
    assert outliers([]) == ()
