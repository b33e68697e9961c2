"""Launches in blocks: a candidate's in turns with a reference kernel's, and what sets blocks apart. Knows no kernel."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import estimate, location_interval

__all__ = ["Block", "Timer", "beyond_noise", "of_blocks", "over_blocks"]

_BY_NOISE = 0.34
"""Variance of a block's level, as a share of its launches', up to which nothing sets blocks apart: twice what the
median of 8 has by noise."""
_BLOCKS_THAT_TELL = 4
"""Fewest blocks of one kernel alone whose levels show what sets them apart."""


@dataclass(frozen=True, slots=True)
class Block:
    """Launches of a candidate in turns with those of the reference kernel; as many samples of each, in launch order."""

    samples_ns: tuple[float, ...]
    """Time of each launch of the candidate, or the mean of each run of launches."""
    reference_ns: tuple[float, ...]
    """Time of each launch of the reference kernel."""
    run: int = 1
    """Launches of the candidate that each of its samples is of."""

    @property
    def launches(self) -> int:
        """Of both kernels."""
        return len(self.samples_ns) * self.run + len(self.reference_ns)

    @property
    def busy_ns(self) -> float:
        """What its launches took."""
        return sum(self.samples_ns) * self.run + sum(self.reference_ns)


class Timer(Protocol):
    """Launches one candidate beside the reference kernel."""

    def single(self) -> Block:
        """One launch of each."""

    def block(self, number: int) -> Block:
        """One replay: 8 samples of each. Blocks of one number use the same operands in the same order."""


def over_blocks(samples_ns: Sequence[float], launches: int) -> Estimate:
    """Location of the samples with its 95 % interval, wider where blocks of so many launches differ by more than these.

    Fewer than `_BLOCKS_THAT_TELL` blocks do not tell. Recomputed from the launches of the two campaigns that showed the
    matter: of cuBLAS' times 77 and 81 % of the intervals held against those of another process, and 83 and 89 % of
    these, which are wider by a third and still short of 95; of Triton's kernels 93 and 90, then 97 and 91 % (656 and
    420 times, H200s, 2026-11-22).
    """
    found = estimate(samples_ns)
    if not launches or len(samples_ns) < _BLOCKS_THAT_TELL * launches:
        return found
    logs = np.log(samples_ns).reshape(-1, launches)
    levels = np.median(logs, axis=1)
    apart = beyond_noise(levels - np.median(levels), logs)
    middle, low, high = of_blocks(logs, apart)
    return Estimate(
        found.time_ns,
        min(found.low_ns, found.time_ns * exp(low - middle)),
        max(found.high_ns, found.time_ns * exp(high - middle)),
    )


def of_blocks(logs: NDArray[np.float64], apart: float, confidence: float = 0.95) -> tuple[float, float, float]:
    """Location of the launches of blocks, one row each, with its interval; `apart` is the variance between blocks.

    Few blocks tell that variance: it counts by Student's t with a degree of freedom for each. That and `_BY_NOISE` were
    chosen among eight such pairs, by the simulation that these figures are of: of a finalist whose blocks differ by
    5 % a final's intervals had the wrong sign in 24 of 100 cases, now in 3 to 5, and held the truth in 36, now in about
    80, still short of 95. Campaigns take 3 % more launches for it, finals of near ties 10 to 40 %, and the mean bound
    of the regret goes from 0.31 to 0.52 %, while the regret itself stays (0.044 and 0.042 %).
    """
    location, low, high = location_interval(logs.ravel(), confidence)
    blocks = float(stdtrit(len(logs), (1 + confidence) / 2)) * sqrt(apart / len(logs))
    return location, location - hypot(location - low, blocks), location + hypot(high - location, blocks)


def beyond_noise(rest: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    """Variance of what the levels of blocks are off by, less what the noise of their launches explains; at least 0."""
    launches = logs - np.median(logs, axis=1, keepdims=True)
    apart, noise = (1.4826 * float(np.median(np.abs(deviations))) for deviations in (rest, launches))
    return max(0.0, apart**2 - _BY_NOISE * noise**2)
