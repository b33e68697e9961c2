"""The process of `evolution`: it fits its kernel again as outcomes come, and improvement points to better configs."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmtune.engine.search.models import kernel
from gemmtune.engine.search.models.kernel import Kernel
from gemmtune.engine.search.models.surrogate import Surrogate

POINTS = np.array([[x / 9, y / 9] for x in range(10) for y in range(10)])


def told(number, batch=1):
    """A surrogate that was told `number` outcomes of a valley along the first coordinate, and each kernel it had."""
    surrogate, order = Surrogate(POINTS), np.random.default_rng(1).permutation(100)[:number]
    kernels = []
    for start in range(0, number, batch):
        positions = [int(position) for position in order[start : start + batch]]
        surrogate.tell(positions, [float((POINTS[position, 0] - 0.6) ** 2) for position in positions])
        kernels.append(surrogate._kernel)
    return surrogate, kernels


def test_the_kernel_is_fitted_at_four_outcomes_and_each_time_they_grew_by_a_fifth():
    _, kernels = told(40)
    changed = [number + 1 for number in range(1, 40) if kernels[number] is not kernels[number - 1]]
    assert changed == [4, 5, 6, 8, 10, 12, 15, 18, 22, 27, 33, 40]


def test_a_fit_finds_the_coordinate_that_decides():
    surrogate, _ = told(40)
    assert not np.allclose(surrogate._kernel.lengths, Kernel.prior(2).lengths)
    assert surrogate._kernel.lengths[0] < surrogate._kernel.lengths[1]


def test_improvement_is_greatest_where_outcomes_are_best_and_least_beside_what_is_pending():
    surrogate, _ = told(30)
    left = [position for position in range(100) if position not in surrogate._evaluated]
    gain = surrogate.improvement(left, [])
    assert abs(POINTS[left[int(np.argmax(gain))], 0] - 0.6) < 0.12
    best = left[int(np.argmax(gain))]
    assert surrogate.improvement([best], [best])[0] < gain.max() / 2


def test_failures_count_as_outcomes_and_spoil_none():
    surrogate = Surrogate(POINTS)
    surrogate.tell(range(6), [0.1, math.nan, 0.2, math.nan, 0.3, 0.4])
    assert np.isfinite(surrogate.improvement(range(6, 20), [7])).all()


@pytest.mark.parametrize("distance", [0.0, 0.25, 4.0])
def test_matern_is_the_published_formula(distance):
    r = math.sqrt(5 * distance)
    assert kernel.matern(np.array([distance]))[0] == pytest.approx((1 + r + r * r / 3) * math.exp(-r))


@pytest.mark.parametrize(("coordinates", "length"), [(1, 0.45), (4, 0.9), (9, 1.35)])
def test_prior_lengths_grow_with_the_root_of_the_number_of_coordinates(coordinates, length):
    assert np.exp(Kernel.prior(coordinates).lengths) == pytest.approx([length] * coordinates)


def test_expected_improvement_is_the_published_formula():
    mean, deviation = np.array([0.0, -0.1, 0.3]), np.array([0.1, 0.2, 0.1])
    z = -mean / deviation
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    below = np.array([0.5 * (1 + math.erf(each / math.sqrt(2))) for each in z])
    assert kernel.expected_improvement(mean, deviation) == pytest.approx(deviation * density - mean * below, rel=1e-6)


@pytest.mark.parametrize(("number", "used"), [(10, 10), (96, 96), (97, 96), (300, 96)])
def test_a_process_is_conditioned_on_96_outcomes_at_most_the_best_half_of_them_in_any_case(number, used):
    outcomes = [float((7 * place) % number) for place in range(number)]
    chosen = kernel.select_outcomes(outcomes)
    assert len(chosen) == len(set(chosen)) == used
    best = sorted(range(number), key=lambda place: outcomes[place])[: used // 2]
    assert set(best) <= set(chosen)
