"""What the picture and the page of best-so-far curves have in common."""

from __future__ import annotations

import math

from gemmtune.engine.report.layout import count
from gemmtune.engine.studies.comparison import Comparison

__all__ = ["AXES", "floor", "panels"]

AXES = ("evaluations, failures included", "optimum / best found")


def panels(comparison: Comparison) -> dict[str, str]:
    """Titles by the landscape of each panel; the mean over all first, where there are several."""
    alone = len(comparison.landscapes) == 1
    whole = {} if alone else {"": f"mean of {count(len(comparison.landscapes), 'landscape')}"}
    return whole | {name: name for name in comparison.landscapes}


def floor(comparison: Comparison) -> float:
    """The lowest fraction worth showing: every curve from the sixth evaluation on."""
    shown = [course.low[min(5, comparison.budget - 1)] for course in comparison.courses]
    return math.floor(10 * min(shown)) / 10
