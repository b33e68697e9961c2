"""Robust statistics of launch samples: no distribution is assumed, an outlier moves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import comb, isfinite
from statistics import median

__all__ = ["FULL_COVERAGE_SAMPLES", "median_interval"]

FULL_COVERAGE_SAMPLES = 6
"""Fewest samples whose order statistics can cover the median with 95 %: 1 − 2·2⁻⁶ = 96.9 %; five give 93.8 %."""


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


@lru_cache(maxsize=256)
def _lower_rank(count: int) -> int:
    """The largest r ≥ 1 with P(Binomial(count, ½) < r) ≤ 1/40; 1 where none is. Exact, in integers."""
    below, rank = 1, 1
    while 40 * (below + comb(count, rank)) <= 2**count:
        below += comb(count, rank)
        rank += 1
    return rank
