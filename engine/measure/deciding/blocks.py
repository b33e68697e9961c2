"""Estimate times from blocks of launches, in which a candidate alternates with the reference kernel."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, hypot, sqrt
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import estimate, location_interval

_NOISE_SHARE = 0.34
"""Variance that noise gives a block's level, as a share of its launches' variance: twice that of a median of 8."""
_LEAST_BLOCKS = 4
"""Fewest blocks of one kernel alone that show how much blocks differ."""


@dataclass(frozen=True, slots=True)
class Block:
    """Launches of a candidate, alternating with launches of the reference kernel; one sample of each per pair."""

    samples_ns: tuple[float, ...]
    """Time of each candidate launch in launch order, or the mean over each run of launches, in nanoseconds."""
    reference_ns: tuple[float, ...]
    """Time of each launch of the reference kernel in launch order, in nanoseconds."""
    run: int = 1
    """Number of candidate launches behind each sample."""

    @property
    def launches(self) -> int:
        """Number of launches of both kernels."""
        return len(self.samples_ns) * self.run + len(self.reference_ns)

    @property
    def busy_ns(self) -> float:
        """Total GPU time of all launches, in nanoseconds."""
        return sum(self.samples_ns) * self.run + sum(self.reference_ns)


class Timer(Protocol):
    """Time one candidate beside the reference kernel."""

    def single(self) -> Block:
        """Launch the candidate and the reference once each."""

    def block(self, number: int) -> Block:
        """Take 8 samples of each kernel. Blocks with one number use the same operands in the same order."""


def estimate_of_blocks(samples_ns: Sequence[float], launches: int) -> Estimate:
    """Return the location of the samples with its 95 % interval, widened if blocks of `launches` samples differ.

    Fewer than 4 blocks cannot show a difference. For coverage see experiments/measurement.
    """
    found = estimate(samples_ns)
    if not launches or len(samples_ns) < _LEAST_BLOCKS * launches:
        return found
    logs = np.log(samples_ns).reshape(-1, launches)
    levels = np.median(logs, axis=1)
    between = variance_between_blocks(levels - np.median(levels), logs)
    middle, low, high = location_of_blocks(logs, between)
    return Estimate(
        found.time_ns,
        min(found.low_ns, found.time_ns * exp(low - middle)),
        max(found.high_ns, found.time_ns * exp(high - middle)),
    )


def location_of_blocks(
    logs: NDArray[np.float64], between: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the location of the launches with its interval, as (location, low, high).

    The variance between blocks is known from few blocks. It widens the interval by Student's t with one degree of
    freedom per block. Simulated finals chose that rule and `_NOISE_SHARE`; see experiments/measurement.
    `logs` holds the logarithms of the times, shape (blocks, launches); `between` is their variance from block to block.
    """
    location, low, high = location_interval(logs.ravel(), confidence)
    margin = float(stdtrit(len(logs), (1 + confidence) / 2)) * sqrt(between / len(logs))
    return location, location - hypot(location - low, margin), location + hypot(high - location, margin)


def variance_between_blocks(deviations: NDArray[np.float64], logs: NDArray[np.float64]) -> float:
    """Return the variance of the blocks' levels less the part that launch noise explains; at least 0.

    `deviations` holds each level less its expected value, shape (blocks,); `logs` the logarithms of the times, shape
    (blocks, launches).
    """
    launches = logs - np.median(logs, axis=1, keepdims=True)
    between, noise = (1.4826 * float(np.median(np.abs(values))) for values in (deviations, launches))
    return max(0.0, between**2 - _NOISE_SHARE * noise**2)
