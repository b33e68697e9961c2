"""Arithmetic that all models share: when to fit, coordinates, shares of a history, and choices that repeat."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.search.encoding import Encoding
from gemmtune.engine.search.models import kernel
from gemmtune.engine.search.models.coordinates import (
    most_central,
    param_coordinates,
    param_values,
    scale_to_unit,
    weigh_coordinates,
)
from gemmtune.engine.search.models.gaussian_process import GaussianProcess
from gemmtune.engine.search.models.reproducible import argmax
from gemmtune.engine.search.models.source_trials import fair_share, has_new_fact, select_trials, usable_sources
from gemmtune.engine.search.models.transfer_model import predict_slowness


@pytest.mark.parametrize(
    ("told", "fitted", "due"),
    [
        *((3, 0, False), (4, 0, True), (5, 4, False), (6, 4, True)),  # half as many again
        *((47, 32, False), (48, 32, True), (79, 64, False), (80, 64, True)),  # 16 at most
    ],
)
def test_a_fit_is_due_after_four_outcomes_and_a_growth_by_half_or_by_16(told, fitted, due):
    assert kernel.is_fit_due(told, fitted) is due


def test_a_failure_counts_as_the_worst_outcome_that_worked():
    assert kernel.above_best([2.0, math.nan, 5.0]).tolist() == [0, 3, 3]
    assert kernel.above_best([math.nan] * 2).tolist() == [0, 0]
    assert len(kernel.above_best([])) == 0


def test_linear_algebra_is_that_of_numpy():
    matrix = np.asfortranarray([[4.0, 1.0], [1.0, 3.0]])
    lower = np.linalg.cholesky(matrix)
    assert np.tril(kernel.factorise(matrix.copy(order="F"))) == pytest.approx(lower)
    right = np.array([[1.0, 2.0], [3.0, 5.0]])
    for order in "CF":
        found = kernel.reduce(np.array(lower, order=order), np.array(right, order="F"))
        assert found == pytest.approx(np.linalg.solve(lower, right))
    with pytest.raises(np.linalg.LinAlgError, match="of 2 not positive"):
        kernel.factorise(np.asfortranarray([[1.0, 2.0], [2.0, 1.0]]))


def test_a_fit_does_not_depend_on_the_order_of_the_outcomes():
    rng = np.random.default_rng(7)
    points = rng.random((9, 3))
    targets = np.sin(5 * points[:, 0]) + 0.1 * points[:, 1]
    prior = kernel.Kernel.prior(3)
    first = prior.fit(points, targets)
    assert not np.allclose(first.lengths, prior.lengths)
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(9)
        other = prior.fit(points[order], targets[order])
        assert other.lengths == pytest.approx(first.lengths)
        assert other.noise == first.noise


def test_a_shift_explains_what_all_targets_share():
    targets = np.array([5.0, 5.0, 5.0, 5.2])
    shift, weights, variance = kernel.solve(np.asfortranarray(np.eye(4)), np.stack([np.ones(4), targets], axis=1))
    assert shift == pytest.approx(targets.sum() / 4.01)
    assert weights == pytest.approx(targets - shift)
    assert variance == pytest.approx((weights @ weights + 0.2 * 0.01) / 4.2)


def test_ascent_goes_by_root_two_per_axis_to_the_least_cost():
    step = math.log(2) / 2
    target = np.array([3 * step, -2 * step])
    found = kernel.ascend(np.zeros(2), lambda lengths: float(((lengths - target) ** 2).sum()))
    assert found == pytest.approx(target)


def test_a_process_interpolates_its_outcomes_and_is_unsure_elsewhere():
    points = np.linspace(0, 1, 21)[:, None]
    process = GaussianProcess(points, [np.zeros(21)])
    for position in (0, 5, 10, 15, 20):
        process.add(position)
    process.tell([math.cos(points[position, 0] * 3) for position in (0, 5, 10, 15, 20)])
    assert process.outcomes == 5
    mean, deviation = process._posterior(0)
    assert mean[[0, 10, 20]] == pytest.approx([1 + 0.99, 0.0707 + 0.99, 0], abs=0.1)  # above the best, cos 3
    assert deviation[10] < deviation[12]
    assert process.improvement(0).argmax() in (18, 19, 20)


def test_a_bound_before_any_outcome_is_a_tenth_below_the_mean_and_rises_beside_what_is_evaluated():
    process = GaussianProcess(np.linspace(0, 1, 21)[:, None], [np.full(21, 2.0)])
    assert process.prior_bound(0) == pytest.approx(1.9)
    process.add(10)
    bound = process.prior_bound(0)
    assert bound[10] == pytest.approx(2 - 0.1 * math.sqrt(0.001), abs=1e-3)
    assert bound[0] < bound[8] < bound[10]
    assert process.outcomes == 0


def configs(**values):
    return [Config(dict(zip(values, each, strict=True))) for each in zip(*values.values(), strict=True)]


def test_parameters_are_coordinates_by_their_order_and_their_powers_of_two():
    params = (
        Param("tile", (16, 48, 64, 96)),
        Param("kind", ("a", "b", "c"), ordered=False),
        Param("on", (False, True)),
    )
    feasible = configs(tile=[16, 48, 64, 96], kind=["a", "b", "c", "a"], on=[False, True, False, True])
    found = param_coordinates(Encoding(params, feasible))
    assert found[:, 0] == pytest.approx([0, 1 / 3, 2 / 3, 1])
    assert found[:, 1] == pytest.approx([0, 0, 1, 0.5])  # 2⁴, 3·2⁴, 2⁶, 3·2⁵
    assert found[:, 2:5].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert found[:, 5].tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "values", [(16, 32, 64, 128), (1, 2, 3, 4), (16, 48, 64), (0, 16, 48, 64), (1.5, 2.5, 3.5, 4.5)]
)
def test_regular_values_have_one_coordinate(values):
    encoding = Encoding((Param("tile", values),), configs(tile=values))
    assert param_coordinates(encoding).shape == (len(values), 1)


def test_values_of_configs_are_numbers_and_texts_their_place_in_the_alphabet():
    assert param_values(configs(tile=[64, 16], kind=["t", "n"])).tolist() == [[1, 64], [0, 16]]
    assert param_values([Config({})] * 2).shape == (2, 0)


def test_columns_are_scaled_and_constant_ones_dropped():
    assert scale_to_unit(np.array([[1.0, 5.0], [3.0, 5.0], [2.0, 5.0]])).tolist() == [[0], [1], [0.5]]
    assert scale_to_unit(np.empty((3, 0))).shape == (3, 0)


def test_a_parameter_that_features_explain_weighs_little():
    explained, free = np.array([0.0, 0.0, 1.0, 1.0]), np.array([0.0, 1.0, 0.0, 1.0])
    found = weigh_coordinates(np.stack([explained, free], axis=1), explained[:, None])
    assert found[-1].tolist() == pytest.approx([0.35, 1, 1.5])
    assert weigh_coordinates(free[:, None], np.empty((4, 0))).tolist() == free[:, None].tolist()


def test_the_most_central_config_is_the_first_nearest_to_the_mean():
    assert most_central(np.array([[0.0], [0.4], [0.6], [1.0]])) == 1


def test_a_choice_ignores_the_last_bits():
    assert argmax(np.array([1.0, 2.0, 2.0 + 1e-12])) == 1
    assert argmax(np.array([1.0, 2.0, 2.0 + 1e-6])) == 2
    assert argmax(np.zeros(3)) == 0


def trials(*scores):
    return tuple(
        Trial(Config({"x": place}), Status.RUN_FAILED if score is None else Status.OK, score)
        for place, score in enumerate(scores)
    )


def test_a_source_has_four_trials_and_one_that_worked():
    four, three, failed = (SourceTask(trials(*of)) for of in ((None, None, None, 1.0), (1.0,) * 3, (None,) * 4))
    assert usable_sources([three, four, failed]) == [four]


@pytest.mark.parametrize(
    ("sizes", "total", "share"),
    [([3, 4], 10, 4), ([10, 10], 10, 5), ([1, 10, 10], 11, 5), ([2, 3, 100], 20, 15), ([5, 5], 10, 5)],
)
def test_a_fair_share_is_what_small_sources_leave(sizes, total, share):
    assert fair_share(sizes, total) == share


def test_the_best_half_of_a_source_and_some_of_the_rest_are_chosen():
    chosen, slowness = select_trials(SourceTask(trials(*(float(place) for place in range(1, 13)), None)), 6)
    assert [trial.score for trial in chosen] == [1, 2, 3, 4, 8, None]
    assert slowness == pytest.approx([0, math.log(2), math.log(3), math.log(4), math.log(8), 3])
    assert len(select_trials(SourceTask(trials(1.0, 2.0)), 2)[0]) == 2


@pytest.mark.parametrize(
    ("name", "there", "here", "new"),
    [
        ("bits", [16, 16], [8, 8], True),
        ("bits", [16, 16], [16, 16], False),
        ("bits", [16, 8], [4, 4], False),  # other tasks show its effect
        ("bits", [16, 16], [8, 4], False),
        ("problem m", [16, 16], [8, 8], False),
    ],
)
def test_a_fact_that_no_other_task_had_is_new(name, there, here, new):
    assert has_new_fact([name], np.array(there)[:, None], np.array(here)[:, None]) is new


@pytest.mark.parametrize("count", [1, 6])
def test_times_are_predicted_from_another_task_also_for_a_single_config(count):
    def features(config):
        return {"x": float(config.integer("x")), "problem m": 4.0}

    params = (Param("x", tuple(range(40))),)
    source = SourceTask(trials(*(float(2 + place) for place in range(40))), features)
    feasible = tuple(Config({"x": 6 * place}) for place in range(count))
    search = Search(params, feasible, (), 8, 0, features=features, history=(source,))
    found = predict_slowness(search, np.array([[*features(config).values()] for config in feasible]))
    assert len(found) == count
    assert found.tolist() == sorted(found.tolist())
    assert 1.2 * (count > 1) <= np.ptp(found) <= math.log(32 / 2)  # smoothed, the logarithm of the times
    assert predict_slowness(Search(params, feasible, (), 8, 0), np.zeros((count, 2))) is None
