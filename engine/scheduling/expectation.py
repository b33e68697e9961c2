"""What a search may still gain, from the best that it has found.

The logarithms of a task's best times lie about as far apart as the largest values of an exponential distribution: the
i-th best stands scale/i before the next (A. Rényi, On the theory of order statistics, 1953), and the scale is the mean
distance of the best few from the one after them (B. M. Hill, A simple general approach to inference about the tail of a
distribution, 1975). Where n configs drawn at random become n·x, the best falls by scale·ln(x) on average.

A search does better than chance, and the tail ends at some least time: both make this estimate of what is left a high
one, which the crowd of a search's last finds makes lower again. On the recorded landscapes what was left lay under
`regret_bound` 94 % of the time, and `expected_gain` was two to three times too high, for all tasks alike
(experiments/scheduling). Bounds from the improvements of the last batches held 71 to 74 % of the time: a search stands
still before it goes on.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import nsmallest

__all__ = ["expected_gain", "regret_bound"]

_BEST = 5
"""Configs the scale is the mean of. With 3 the bound held 92 % of the time, with 8 96 %, and was 0.5 and 1.7 times as
wide."""

_CHANCES = 32
"""Evaluations a task may spend before so many have worked that something can be said of it."""


def regret_bound(scores: Iterable[float], evaluations: int, feasible: int) -> float:
    """How much slower the best may be than the best of the whole feasible set, as a fraction.

    Args:
        scores: of the configs that were ok, to minimise, above 0.
        evaluations: configs evaluated, failures included.
        feasible: configs there are.

    Returns:
        0 when all have been evaluated; infinity when too few were ok to say.
    """
    if evaluations >= feasible:
        return 0.0
    _, scale = _tail(scores)
    return math.inf if scale is None else math.expm1(scale * math.log(feasible / evaluations))


def expected_gain(scores: Iterable[float], evaluations: int, batch: int) -> float:
    """What the next batch is expected to take off the best score.

    Infinity where too few were ok to say, and 0 where that is so although many have been tried.
    """
    best, scale = _tail(scores)
    if scale is None:
        return math.inf if evaluations < _CHANCES else 0.0
    return best * -math.expm1(-scale * math.log1p(batch / evaluations))


def _tail(scores: Iterable[float]) -> tuple[float, float | None]:
    """The best score, and the scale of the tail in logarithms; None for the scale of too few scores."""
    best = nsmallest(_BEST + 1, scores)
    if len(best) <= _BEST:
        return math.inf, None
    return best[0], sum(math.log(best[-1] / score) for score in best[:-1]) / _BEST
