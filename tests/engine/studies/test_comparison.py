"""Tests of comparisons of samplers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.report.studies import comparison_report, mean_score_text
from gemmtune.engine.studies.comparison import Reached, compare, curves_over_seconds
from gemmtune.engine.studies.intervals import mean_interval
from gemmtune.engine.studies.performance_score import PerformanceScore
from gemmtune.engine.studies.sampler_study import replays


def landscape(times: Sequence[float], name: str = "p") -> Landscape:
    points = {Config({"x": i}): Point(Config({"x": i}), Status.OK, time) for i, time in enumerate(times)}
    return Landscape(name, f"{name}.csv", (Param("x", tuple(range(len(times)))),), points)


def search(*times: float | None) -> tuple[Trial, ...]:
    """Trials of configs that the landscape need not name: the curves look at their scores alone."""
    return tuple(Trial(Config({"x": 0}), Status.OK if t else Status.RUN_FAILED, t) for t in times)


P = landscape([10.0, 20.0, 40.0, 80.0])


def test_a_curve_is_the_mean_over_the_seeds_of_optimum_over_best_so_far():
    found = compare([P], {"arm": [[search(40, 20, 80)], [search(None, 80, 10)]]}, 3)
    assert found.curve("arm", "p").mean == pytest.approx((0.125, (0.5 + 0.125) / 2, 0.75))
    assert (found.seeds, found.landscapes, found.arms) == (2, ("p",), ("arm",))


def test_ended_search_keeps_its_best_and_search_without_success_is_zero():
    found = compare([P], {"ended": [[search(20)]], "failed": [[search(None, None)]]}, 3)
    assert found.curve("ended").mean == (0.5, 0.5, 0.5)
    assert found.curve("failed").mean == (0, 0, 0)


def test_one_landscape_needs_eight_different_results_for_an_interval():
    found = compare([P], {"arm": [[search(time)] for time in (10, 10, 11, 12, 13, 20, 30, 40, 80)]}, 1).curve("arm")
    low, high = mean_interval(10 / np.array([10, 10, 11, 12, 13, 20, 30, 40, 80]), 1)
    assert (found.low, found.high) == ((low,), (high,))
    poor = compare([P], {"arm": [[search(time)] for time in (10, 10, 10, 12, 13, 20, 30, 40, 80)]}, 1).curve("arm")
    assert poor.low == poor.high == (None,)


def test_five_landscapes_need_five_seeds_and_four_different_results_for_an_interval():
    studied = [landscape([10.0, 20.0, 40.0, 80.0], name) for name in "abcde"]
    found = compare(studied, {"arm": [[search(time)] * 5 for time in (10, 10, 20, 40, 80)]}, 1).curve("arm")
    low, high = mean_interval(np.array([1, 1, 0.5, 0.25, 0.125]), 5)
    assert (found.low, found.high) == ((low,), (1,))
    assert high > 1  # cut to what a fraction can be
    for times in [(10, 20, 40, 80), (10, 10, 10, 40, 80)]:
        poor = compare(studied, {"arm": [[search(time)] * 5 for time in times]}, 1).curve("arm")
        assert poor.low == poor.high == (None,)


def test_the_interval_of_the_score_is_that_of_the_mean_over_the_landscapes_by_seed():
    studied = [wide(), wide("other")]
    arms = {"random": list(replays(studied, "random", 64, seeds=12))}
    score = compare(studied, arms, 64).curve("random").score
    searches = zip(*arms["random"], strict=True)
    by_seed = [PerformanceScore(one).by_search(found)[1] for one, found in zip(studied, searches, strict=True)]
    behind, ahead, _ = np.mean(by_seed, axis=0)
    low, high = mean_interval(behind, 2, spent=2)[0], mean_interval(ahead, 2, spent=2)[1]
    assert (score.low, score.high) == (np.floor(100 * low) / 100, min(1, np.ceil(100 * high) / 100))
    four = compare(studied, {"random": arms["random"][:4]}, 64).curve("random").score
    assert (four.low, four.high) == (None, None)


def test_searches_that_end_alike_give_the_score_no_interval():
    studied = wide()
    points = sorted(studied.points.values(), key=lambda point: point.time_ns)
    orders = [[*points[60 - i : 60], *points[:1], *points[80:140]] for i in range(20)]  # the optimum, sooner or later
    alike = [[tuple(Trial(point.config, Status.OK, point.time_ns) for point in order)] for order in orders]
    score = compare([studied], {"alike": alike}, 60).curve("alike").score
    assert len(np.unique(PerformanceScore(studied).by_search([trials for [trials] in alike])[1][0])) > 10
    assert (score.low, score.high) == (None, None)


def test_nineteen_of_twenty_intervals_of_the_score_hold_that_of_all_searches():
    few_are_best = landscape([1e3 * (1 + min(i, 4) / 10 + i / 400) for i in range(400)])
    rng = np.random.default_rng(0)
    points = list(few_are_best.points.values())
    orders = [rng.permutation(len(points))[:160] for _ in range(1000)]
    pool = [tuple(Trial(points[i].config, Status.OK, points[i].time_ns) for i in order) for order in orders]
    truth = PerformanceScore(few_are_best).score(pool)
    studies = [[[pool[i]] for i in rng.integers(len(pool), size=30)] for _ in range(400)]
    scores = [compare([few_are_best], {"few": study}, 160).curve("few").score for study in studies]
    scores = [score for score in scores if score.low is not None]
    assert 0.92 < np.mean([score.low <= truth <= score.high for score in scores]) < 0.98


def test_evaluations_to_a_fraction_are_those_of_the_median_search():
    there, late, never = search(10), search(80, 40, 10), search(80, 80, 80)
    found = compare([P], {"arm": [[there], [late], [never]]}, 3)
    assert found.curve("arm").reached[0.95] == Reached(3, pytest.approx(2 / 3))
    half = compare([P], {"arm": [[there], [never]]}, 3)
    assert half.curve("arm").reached[0.99] == Reached(None, 0.5)


def test_all_landscapes_together_weigh_the_same():
    q = landscape([5.0, 10.0], "q")
    found = compare([P, q], {"arm": [[search(40), search(5)], [search(20), search(10)]]}, 1)
    assert found.curve("arm").mean == pytest.approx(((0.25 + 1 + 0.5 + 0.5) / 4,))
    assert found.curve("arm", "q").mean == pytest.approx((0.75,))
    with pytest.raises(KeyError):
        found.curve("arm", "r")


def wide(name: str = "wide") -> Landscape:
    return landscape([1e3 + (7919 * i % 400) for i in range(400)], name)


def test_the_score_needs_a_budget_that_covers_its_range():
    studied = [wide()]
    short, enough = (
        compare(studied, {"random": replays(studied, "random", budget, seeds=8)}, budget) for budget in (8, 64)
    )
    assert short.ranges == enough.ranges
    assert short.curve("random").score is None
    score = enough.curve("random").score
    assert score.low < score.value < score.high
    assert abs(score.value) < 0.3


def test_a_score_does_not_depend_on_what_it_is_compared_with():
    studied = [wide(), wide("other")]
    arms = {name: list(replays(studied, name, 64, seeds=3)) for name in ("random", "evolution")}
    alone, both = compare(studied, {"random": arms["random"]}, 64), compare(studied, arms, 64)
    assert both.curve("random") == alone.curve("random")
    assert (
        both.curve("evolution", "other").score
        == compare(studied[1:], {"e": [c[1:] for c in arms["evolution"]]}, 64).curve("e").score
    )


def test_the_mean_score_is_over_the_landscapes_where_all_arms_have_one():
    studied = [wide(), wide("other")]
    good = list(replays(studied, "random", 64, seeds=2))
    failures = [
        [first, tuple(replace(t, status=Status.RUN_FAILED, score=None) for t in second)] for first, second in good
    ]
    found = compare(studied, {"good": good, "failed": failures}, 64)
    assert found.curve("failed", "other").score is None
    assert found.curve("good", "other").score is not None
    for arm in ("good", "failed"):
        assert found.curve(arm).score.value == found.curve(arm, "wide").score.value
        assert mean_score_text(found, arm).endswith(" of 1 of 2 landscapes")


def test_the_json_object_holds_curves_counts_and_scores():
    record = compare([P], {"arm": [[search(40, 10)]]}, 2).to_json()
    assert json.loads(json.dumps(record))["curves"][1] == {
        "arm": "arm",
        "landscape": "p",
        "fraction_of_optimum": [0.25, 1.0],
        "low": [None, None],
        "high": [None, None],
        "evaluations_to": {"0.95": {"median": 2, "share": 1.0}, "0.99": {"median": 2, "share": 1.0}},
        "score": None,
    }


def test_the_report_ranks_the_arms_and_shows_each_pairs_lead():
    q = landscape([5.0, 10.0], "q")
    arms = {
        "slow": [[search(time), search(10)] for time in (20, 40, 40, 80, 80)],
        "fast": [[search(10), search(5)]] * 5,
    }
    text = comparison_report(compare([P, q], arms, 1), {"batch": 1, "apart": True, "cold": False}).to_text()
    assert "mean rank over 2 landscapes after 1 evaluations; 1.39 apart is beyond chance" in text
    assert "fast - slow" in text


def test_arms_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="arm one: 1 searches per replay for 2 landscapes"):
        compare([P, wide()], {"one": [[search(10)]]}, 1)
    with pytest.raises(ValueError, match=r"different numbers of replays: {'a': 1, 'b': 2}"):
        compare([P], {"a": [[search(10)]], "b": [[search(10)], [search(10)]]}, 1)


def test_seconds_may_be_zero_and_a_landscape_without_them_is_refused():
    costs = {0: 2.0, 1: None, 2: 0.0, 3: 1.0}
    points = {c: replace(point, cost_seconds=costs[c.integer("x")]) for c, point in P.points.items()}
    failed = Config({"x": 2})
    points[failed] = replace(points[failed], status=Status.BUILD_FAILED, time_ns=None)
    timed = replace(P, points=points)

    def curve(studied, *asked):
        trials = [Trial(config, point.status, point.time_ns) for config, point in studied.points.items()]
        return curves_over_seconds([studied], {"arm": [[tuple(trials[place] for place in asked)]]}, steps=4)[0]

    assert (curve(timed, 2, 3, 0).seconds, curve(timed, 2, 3, 0).mean) == ((0, 1, 2, 3), (0, 0.125, 0.125, 1))
    assert (curve(timed).seconds, curve(timed).mean) == ((0, 0, 0, 0), (0, 0, 0, 0))
    with pytest.raises(LandscapeError, match=r"p has no recorded seconds of Config\(x=1\): fill its cost.seconds"):
        curve(timed, 0, 1)
    with pytest.raises(LandscapeError, match=r"p has no recorded seconds: add the column cost.seconds"):
        curve(P, 0)
