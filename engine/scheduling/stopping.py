"""Decide when searching stops before every task has spent its budget."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nsmallest

from gemmtune.engine.io.options import Option, Value, check_options, stated

_BEST = 5
"""Number of configs whose mean distance is the scale of the tail; see experiments/scheduling."""


_STOP_GAIN = (
    "Stop searching once a GPU-hour saves less than this fraction of the baselines' weighted time. That is what the "
    "best configs saved in the last quarter of the run, at least a minute, since every search began; GPU-hours are "
    "wall time x GPUs."
)


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a campaign's searches, None for no limit. Running evaluations and the finals are completed anyway."""

    seconds: float | None = stated(
        None, Option("Stop searching after so many seconds.", Value.SECONDS, "Limits", above=0)
    )
    """Wall-clock time of this run of the campaign."""
    gpu_seconds: float | None = stated(
        None, Option("Stop searching after so many GPU-seconds, wall time x GPUs.", Value.SECONDS, "Limits", above=0)
    )
    regret: float | None = stated(
        None,
        Option(
            "End a task once its best is within this fraction of the best there is.", Value.FRACTION, "Limits", above=0
        ),
    )
    """Regret bound at which the search of a task ends; see `regret_bound`."""
    stop_gain: float | None = stated(None, Option(_STOP_GAIN, Value.FRACTION, "Limits", above=0))
    """Gain per GPU-hour below which searching stops; see `Gain`."""

    def __post_init__(self) -> None:
        """Refuse limits that are not above 0 or not finite."""
        check_options(self)

    @property
    def may_end_early(self) -> bool:
        """Whether searching may end before a task's evaluations are spent, so that all tasks should advance alike."""
        return any((self.seconds, self.gpu_seconds, self.stop_gain))

    def seconds_left(self, gpus: int, elapsed_seconds: float) -> float | None:
        """Return the time until searching ends, s, on so many GPUs; None without a time limit."""
        ends = [self.seconds, None if self.gpu_seconds is None else self.gpu_seconds / gpus]
        limit = min((end for end in ends if end is not None), default=None)
        return None if limit is None else max(0.0, limit - elapsed_seconds)

    def after(self, elapsed_seconds: float, gpus: int) -> Limits | None:
        """Return the limits of searches that begin so much later, on so many GPUs; None where time is over."""
        left = self.seconds_left(gpus, elapsed_seconds)
        return None if left == 0.0 else self if left is None else replace(self, seconds=left, gpu_seconds=None)


def regret_bound(scores: Iterable[float], evaluations: int, feasible: int) -> float:
    """Estimate the fraction by which the best score may lie above the best of the whole feasible set.

    The logarithms of the best times of a task lie about as far apart as the largest values of an exponential
    distribution: the i-th best lies scale / i before the next (Rényi, On the theory of order statistics, 1953). The
    scale is the mean distance of the best few from the next one (Hill, A simple general approach to inference about
    the tail of a distribution, 1975). Where n random configs become n * x, the best falls by scale * ln(x) on average.
    Searches do better than chance, so the estimate is high; see experiments/scheduling.

    Args:
        scores: scores above 0 of the configs that were ok; lower is better.
        evaluations: configs evaluated, failures included.
        feasible: number of feasible configs.

    Returns:
        0 if all configs were evaluated; infinity if too few were ok.
    """
    if evaluations >= feasible:
        return 0.0
    best = nsmallest(_BEST + 1, scores)
    if len(best) <= _BEST:
        return math.inf
    scale = sum(math.log(best[-1] / score) for score in best[:-1]) / _BEST
    return math.expm1(scale * math.log(feasible / evaluations))
