"""Reports of comparisons: a mean score says how many landscapes it is of."""

import pytest

from gemmtune.engine.report.studies import comparison_report
from gemmtune.engine.studies.comparison import GOALS, Comparison, Curve, Reached, Score


def comparison(*scores):
    """A comparison of one arm whose score on each landscape is given, or None."""
    known = [score for score in scores if score is not None]
    mean = sum(known) / len(known) if known else None
    names = tuple(f"landscape {number}" for number in range(len(scores)))
    curves = tuple(
        Curve("random", name, (0.5, 0.9), (0.5, 0.9), (0.5, 0.9), dict.fromkeys(GOALS, Reached(None, 0.0)), score)
        for name, value in zip(("", *names), (mean, *scores), strict=True)
        for score in [None if value is None else Score(value, value, value)]
    )
    return Comparison(2, 1, names, (None,) * len(scores), curves)


@pytest.mark.parametrize(
    ("scores", "cell"),
    [
        ((0.8, None, None), "0.80 [0.80, 0.80] of 1 of 3 landscapes"),
        ((0.8, 0.6), "0.70 [0.70, 0.70]"),
        ((None, None), "-"),
    ],
)
def test_a_mean_score_says_how_many_landscapes_have_one(scores, cell):
    headline = comparison_report(comparison(*scores)).to_text().splitlines()[5]
    assert headline.split("  ")[0] == "random"
    assert headline.endswith(f"  {cell}")
