"""Robust statistics of launch samples: no distribution is assumed, an outlier moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, floor, isfinite, sqrt
from statistics import NormalDist, median

import numpy as np
from numpy.typing import ArrayLike, NDArray

from gemmtune.engine.records.measurement import Estimate

__all__ = ["FULL_COVERAGE_SAMPLES", "estimate", "location_interval", "median_interval", "outliers"]

FULL_COVERAGE_SAMPLES = 6
"""Fewest samples whose order statistics can cover the median with 95 %: 1 − 2·2⁻⁶ = 96.9 %; five give 93.8 %."""

_EXACT_SAMPLES = 25
"""Most samples whose signed-rank distribution is counted out; above, its normal approximation is within one rank."""
_FAR_DEVIATIONS = 5.0
"""Robust standard deviations from the median at which a sample is an outlier: one normal sample in 1.7 million."""
_LEAST_DEVIATION = 1e-3
"""Floor of the robust standard deviation, as a share of the median: event timers tick in 32 ns (H200, 2026-11-21), so
that most samples of a quiet kernel are equal and their spread alone would mark the rest."""
_LEAST_OUTLIER_SAMPLES = 5
"""Fewest samples that show which of them is off."""


def estimate(samples_ns: Sequence[float], confidence: float = 0.95) -> Estimate:
    """The Hodges–Lehmann location of launch times with its interval; see `location_interval`.

    Raises:
        ValueError: there are no samples, or one is not finite.
    """
    return Estimate(*location_interval(samples_ns, confidence))


def location_interval(values: ArrayLike, confidence: float = 0.95) -> tuple[float, float, float]:
    """The Hodges–Lehmann location of n values with its interval, as (location, low, high).

    The location is the median of the n(n+1)/2 Walsh averages (xᵢ + xⱼ)/2, i ≤ j: nearly as efficient as the mean on
    normal noise, unmoved by outliers, and steady where samples fall on two levels, between which a median jumps. The
    interval's ends are the C-th smallest and the C-th largest Walsh average, with the largest C for which the Wilcoxon
    signed-rank statistic is below C with a probability of at most (1 − confidence)/2. It holds for independent samples
    of a symmetric distribution (Hollander, Wolfe and Chicken, Nonparametric Statistical Methods, sections 3.2 to 3.4).

    Where n is too small for the confidence (below 6 at 95 %, below 8 at 99 %) the interval is minimum to maximum, which
    covers 1 − 2¹⁻ⁿ; one value gives low = high = itself: an interval of no coverage.

    Time and memory grow with n²; 512 values take about 2 ms.

    Raises:
        ValueError: there are no values, or one is not finite.
    """
    ordered = np.asarray(values, dtype=np.float64)
    if ordered.size == 0:
        raise ValueError("no samples: a location needs at least one")
    if not np.isfinite(ordered).all():
        raise ValueError("a sample is not finite")
    sums = (ordered[:, np.newaxis] + ordered)[_pairs(ordered.size)]
    rank = _signed_rank(ordered.size, confidence)
    middle = sums.size // 2
    places = [rank - 1, (sums.size - 1) // 2, middle, sums.size - rank]
    low, below, above, high = np.partition(sums, places)[places].tolist()
    return (below + above) / 4, low / 2, high / 2


def outliers(samples_ns: Sequence[float]) -> tuple[int, ...]:
    """Positions of the samples more than 5 robust standard deviations (1.4826 MAD) off the median, to be marked.

    The deviation counts as at least 0.1 % of the median. Fewer than 5 samples have no outliers.
    """
    if len(samples_ns) < _LEAST_OUTLIER_SAMPLES:
        return ()
    samples = np.asarray(samples_ns, dtype=np.float64)
    middle = np.median(samples)
    off = np.abs(samples - middle)
    deviation = max(1.4826 * np.median(off), _LEAST_DEVIATION * middle)
    return tuple(np.flatnonzero(off > _FAR_DEVIATIONS * deviation).tolist())


def median_interval(samples_ns: Sequence[float]) -> tuple[float, float, float]:
    """The sample median with the 95 % interval of the true median, as (median, low, high), in nanoseconds.

    The interval's ends are two of the samples: x₍ᵣ₎ and x₍ₙ₊₁₋ᵣ₎ of the sorted n, with the largest r for which
    Binomial(n, ½) is below r with a probability of at most 2.5 %. It holds for every continuous distribution of
    independent samples (Hahn and Meeker, Statistical Intervals, section 5.2).

    One sample gives low = high = its value: an interval of no coverage. Two to five give minimum to maximum, which
    covers less than 95 % (50, 75, 87.5 and 93.8 %): compare such intervals with a margin beside them.

    Raises:
        ValueError: there are no samples, or one is not finite.
    """
    if not samples_ns:
        raise ValueError("no samples: a median needs at least one")
    if not all(isfinite(sample) for sample in samples_ns):
        raise ValueError("a sample is not finite")
    ordered = sorted(samples_ns)
    rank = _lower_rank(len(ordered))
    return float(median(ordered)), float(ordered[rank - 1]), float(ordered[-rank])


@lru_cache(maxsize=64)
def _pairs(count: int) -> NDArray[np.bool_]:
    """Where i ≤ j in a square of this side."""
    return np.triu(np.ones((count, count), np.bool_))


@lru_cache(maxsize=1024)
def _signed_rank(count: int, confidence: float) -> int:
    """The largest C ≥ 1 with P(T < C) ≤ (1 − confidence)/2, T the signed-rank statistic of `count`; 1 where none is."""
    tail = (1 - confidence) / 2
    if count > _EXACT_SAMPLES:
        deviation = sqrt(count * (count + 1) * (2 * count + 1) / 24)
        return max(1, floor(count * (count + 1) / 4 + NormalDist().inv_cdf(tail) * deviation + 0.5))
    ways = [1]  # ways[t]: how many subsets of the ranks so far sum to t
    for rank in range(1, count + 1):
        ways = [a + b for a, b in zip(ways + [0] * rank, [0] * rank + ways, strict=True)]
    below, place = ways[0], 0
    while below <= tail * 2**count:
        place += 1
        below += ways[place]
    return max(1, place)


@lru_cache(maxsize=256)
def _lower_rank(count: int) -> int:
    """The largest r ≥ 1 with P(Binomial(count, ½) < r) ≤ 1/40; 1 where none is. Exact, in integers."""
    below, rank = 1, 1
    while 40 * (below + comb(count, rank)) <= 2**count:
        below += comb(count, rank)
        rank += 1
    return rank
