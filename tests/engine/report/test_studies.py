"""Reports of comparisons: a mean score says how many landscapes it is of."""

import pytest

from gemmtune.engine.report.studies import comparison_report, interval_text
from gemmtune.engine.studies.comparison import GOALS, Comparison, Curve, Reached, Score

CAMPAIGN = {"batch": 8, "cold": False, "apart": False}


def comparison(*scores, ends=(None, None)):
    """A comparison of one arm whose score on each landscape is given, or None, and the ends of its interval."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else None
    names = tuple(f"landscape {number}" for number in range(len(scores)))
    curves = tuple(
        Curve("random", name, (0.5, 0.9), (0.5, 0.9), (0.5, 0.9), dict.fromkeys(GOALS, Reached(None, 0.0)), score)
        for name, value in zip(("", *names), (mean, *scores), strict=True)
        for score in [None if value is None else Score(value, *ends)]
    )
    return Comparison(2, 1, names, (None,) * len(scores), curves)


@pytest.mark.parametrize(
    ("scores", "cell"),
    [
        ((0.8, None, None), "0.80 of 1 of 3 landscapes"),
        ((0.8, 0.6), "0.70"),
        ((None, None), "-"),
    ],
)
def test_a_mean_score_says_how_many_landscapes_have_one(scores, cell):
    lines = comparison_report(comparison(*scores), CAMPAIGN).to_text().splitlines()
    assert lines[0].endswith("budget 2, 1 seed, batch 8, a campaign per seed:")
    assert lines[1] == "optimum / best found after so many evaluations (no interval below 8 seeds)"
    curves = lines.index("") + 1
    assert lines[curves].split() == ["sampler", "2"]  # where no round number of evaluations was reached
    assert lines[curves + 2] == "random   0.900 [0.900, 0.900]"
    headline = [line for line in lines if line.startswith("random")][1]
    assert headline.endswith(f"  {cell}")


def test_an_interval_is_shown_by_its_ends():
    lines = comparison_report(comparison(0.8, ends=(0.75, 0.85)), CAMPAIGN | {"apart": True, "cold": True}).to_text()
    assert "batch 8, searches apart, cold:" in lines
    assert "0.80 [0.75, 0.85]" in lines


def test_the_text_says_how_many_results_an_interval_needs():
    assert interval_text(8, 4) == "[95 % interval, from 8 different results on]"
    assert interval_text(7, 4) == "(no interval below 8 seeds)"
    assert interval_text(5, 5) == "[95 % interval, from 4 different results on]"
    assert interval_text(4, 5) == "(no interval below 5 seeds)"
