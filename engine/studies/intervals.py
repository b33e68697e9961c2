"""Intervals of a mean over few searches, whose results are skewed: most are near the optimum, some far behind."""

import math

import numpy as np
from numpy.typing import NDArray

LEAST_SEEDS = 5
"""Fewest seeds that give an interval: Student's t says next to nothing about fewer."""
MANY = 5
"""Landscapes whose mean needs few different results for an interval; over fewer, one rare search may move the mean."""

_Floats = NDArray[np.float64]


def least_results(over: int) -> int:
    """Return the fewest different results that give an interval of a mean over so many landscapes."""
    return 4 if over >= MANY else 8


def mean_interval(values: _Floats, over: int, spent: int = 1, ends: _Floats | None = None) -> tuple[_Floats, _Floats]:
    """Return both ends of the 95 % interval of a mean, for values of shape (seeds, ...); NaN where there is none.

    There is none below `LEAST_SEEDS`, nor with fewer different values than `least_results` says. Of a mean over fewer
    landscapes than `MANY`, `ends` of the searches count in place of the values. Student's t, with `spent` fewer degrees
    of freedom than there are seeds, of Hall's transformation, which takes the skewness of the values out of the
    statistic. Its coverage in simulations: see experiments/search. Source: P. Hall, On the Removal of Skewness by
    Transformation, Journal of the Royal Statistical Society B 54 (1992).
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    seeds = len(values)
    results = values if ends is None or over >= MANY else ends
    different = (np.diff(np.sort(results, axis=0), axis=0) > 1e-9).sum(axis=0) + 1
    is_poor = (different < least_results(over)) | (seeds < LEAST_SEEDS)
    mean, off = values.mean(axis=0), values - values.mean(axis=0)
    error = np.where(is_poor, math.nan, np.sqrt(np.sum(off**2, axis=0) / max(seeds - 1, 1) / seeds))
    spread, cubes = np.sqrt(np.mean(off**2, axis=0)), np.mean(off**3, axis=0)
    skewness = np.divide(cubes, spread**3, out=np.zeros_like(mean), where=spread > 0) / math.sqrt(seeds)
    quantile = float(stdtrit(max(seeds - spent, 1), 0.975))
    return mean - error * _undo(quantile, skewness), mean - error * _undo(-quantile, skewness)


def _undo(quantile: float, skewness: _Floats) -> _Floats:
    """Return the Student statistic whose transformation is the quantile, for skewness / √seeds."""
    flat = np.abs(skewness) < 1e-6
    scale = np.where(flat, 1.0, skewness)
    return np.where(flat, quantile, 3 / scale * (np.cbrt(1 + scale * (quantile - scale / 6)) - 1))
