"""Intervals of a mean over few searches, whose results are skewed: most are near the optimum, some far behind."""

import math

import numpy as np
from numpy.typing import NDArray

LEAST_SEEDS = 5
"""Fewest seeds that give an interval: Student's t says next to nothing about fewer."""
LEAST_RESULTS = 3
"""Fewest different values that give an interval: all others may have been lucky alike."""

_Floats = NDArray[np.float64]


def mean_interval(values: _Floats, spent: int = 1) -> tuple[_Floats, _Floats]:
    """Return both ends of the 95 % interval of a mean, for values of shape (seeds, ...); NaN where there is none.

    There is none below `LEAST_SEEDS`, nor where the values are two different ones at most.
    Student's t, with `spent` fewer degrees of freedom than there are seeds, of Hall's transformation, which takes the
    skewness of the values out of the statistic. Its coverage in simulations: see experiments/search. Source: P. Hall,
    On the Removal of Skewness by Transformation, Journal of the Royal Statistical Society B 54 (1992).
    """
    from scipy.special import stdtrit  # scipy.stats takes a second to import

    seeds = len(values)
    results = (np.diff(np.sort(values, axis=0), axis=0) > 1e-9).sum(axis=0) + 1
    is_poor = (results < LEAST_RESULTS) | (seeds < LEAST_SEEDS)
    mean, off = values.mean(axis=0), values - values.mean(axis=0)
    error = np.where(is_poor, math.nan, np.sqrt(np.sum(off**2, axis=0) / max(seeds - 1, 1) / seeds))
    spread = np.sqrt(np.mean(off**2, axis=0))
    cubes = np.mean(off**3, axis=0)
    skewness = np.divide(cubes, spread**3, out=np.zeros_like(mean), where=spread > 0) / math.sqrt(seeds)
    quantile = float(stdtrit(max(seeds - spent, 1), 0.975))
    return mean - error * _undo(quantile, skewness), mean - error * _undo(-quantile, skewness)


def _undo(quantile: float, skewness: _Floats) -> _Floats:
    """Return the Student statistic whose transformation is the quantile, for skewness / √seeds."""
    flat = np.abs(skewness) < 1e-6
    scale = np.where(flat, 1.0, skewness)
    return np.where(flat, quantile, 3 / scale * (np.cbrt(1 + scale * (quantile - scale / 6)) - 1))
