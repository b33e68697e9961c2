"""Clocks that wander: when they have steady under load, and how far they have moved since."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import copysign, log1p

import numpy as np

from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES, location_interval

__all__ = ["Drift", "WarmUp"]


class WarmUp:
    """Decides when clocks have steady, from readings of the reference kernel under uninterrupted load.

    A reading is the location of so many launches that its own noise is far below the tolerance: 5 readings of noise s
    span about 2.3 s, so that 0.5 % asks for 100 launches a reading where one launch scatters by 1.5 %.
    """

    def __init__(
        self,
        started_seconds: float,
        least_seconds: float = 0.4,
        most_seconds: float = 3.0,
        tolerance: float = 0.005,
    ) -> None:
        """Start with the load.

        Args:
            started_seconds: when the load began, on the clock that times the readings.
            least_seconds: load before which no agreement counts; clocks settle over the first 400 ms (B200, one
                kernel going from 1.37 to 1.52 ms).
            most_seconds: load after which waiting ends either way.
            tolerance: the span of the last 5 readings, as a share of their lowest, up to which they agree.
        """
        self._started_seconds = started_seconds
        self._least_seconds = least_seconds
        self._most_seconds = most_seconds
        self._tolerance = tolerance
        self._loaded_seconds = 0.0
        self._last: deque[float] = deque(maxlen=5)

    def add(self, reading_ns: float, at_seconds: float) -> None:
        """Take a reading, and the time at which it ended."""
        self._last.append(reading_ns)
        self._loaded_seconds = at_seconds - self._started_seconds

    @property
    def done(self) -> bool:
        """Whether to stop waiting: the clocks have steady, or were given up on."""
        return self._loaded_seconds >= self._most_seconds or bool(self.steady)

    @property
    def steady(self) -> Verdict:
        """Whether the clocks have steady; if not, why not."""
        if self._loaded_seconds < self._least_seconds:
            return Verdict.no("load", f"{self._loaded_seconds:.1f} s of load < {self._least_seconds:.1f} s")
        if len(self._last) < (self._last.maxlen or 0):
            return Verdict.no("readings", f"{len(self._last)} readings < {self._last.maxlen}")
        span = max(self._last) / min(self._last) - 1
        if span > self._tolerance:
            last = f"the last {len(self._last)} readings of the reference kernel span {span:.1%}"
            return Verdict.no("agreement", f"{last} > {self._tolerance:.1%} after {self._loaded_seconds:.1f} s of load")
        return Verdict.yes()


@dataclass(frozen=True, slots=True)
class Drift:
    """How far the clocks are from where they were when a problem was set up, by the reference kernel's time."""

    nominal_ns: float
    """Location of the reference kernel's time when the problem was set up."""
    reference_scatter: float = 0.0
    """Standard deviation of its level from one candidate to another on the same clocks, as a share of it; what it
    explains is no clock's doing. About 1.5 % for a reference of 50 µs or more, 3 % for one of 6 to 12 µs (H200,
    2026-11-22)."""
    tolerance: float = field(default=0.03, kw_only=True)
    """Change of the reference kernel's time that is not corrected. Beside one candidate or another its level differs by
    1 to 2 % (one standard deviation) on the same clocks, and clocks that are slower by a tenth slow a kernel that waits
    for latency by a tenth, one that waits for memory not at all: small corrections add more noise than they take away
    (two passes over 200 configs agree to 0.25 % without and 0.34 % with a tolerance of 1 %: H200, 2026-11-21)."""
    step: float = field(default=0.01, kw_only=True)
    """Change between two blocks of one candidate, beside the same neighbour, that is a step of the clocks."""
    slow_tolerance: float = field(default=0.05, kw_only=True)
    """Slowness of the reference beyond which a block is measured again after a rest. A power limit that sets in slows
    it by 4 to 20 %, one kernel more than the other, for tens of milliseconds (H200, GEMMs of 2048x4096x4096 and
    1024x1280x3420 in turns); other things may, too."""
    may_be_throttled: Callable[[], bool] = field(default=lambda: True, kw_only=True)
    """Whether anything may hold the clocks back now; by default it is not known, and may be. Where nothing does, a
    reference that moved has reasons of its own: beside one candidate cuBLAS' kernel for 384x4096x14336 took 1.24 times
    its level, at 1980 MHz before and after, and 93 µs were taken for 75. Of 2,060 times 28 had been corrected by more
    than 2 %, 26 of them at full clocks by NVML (63 problems with ranges of m, one H200, 2026-11-22); with this, on
    another H200, 9 of 2,047 still were, all under a power cap, some by more than the clocks that NVML read explain."""

    def factor(self, reference_ns: Sequence[float]) -> float:
        """What to divide by what was timed beside these launches: 1 while the reference has not moved by the clocks.

        Beyond twice the tolerance it is the reference's location over its nominal level; from the tolerance on it goes
        there from 1, without a jump. The tolerance is at least twice what `reference_scatter` says.

        Of fewer than 6 launches the fastest counts instead: one late launch would move the location of so few, and
        would make whatever ran beside it look fast, while no launch is early by chance.

        Raises:
            ValueError: there are no samples, or one is not finite.
        """
        location, fastest, _ = location_interval(reference_ns)
        level = (fastest if len(reference_ns) < FULL_COVERAGE_SAMPLES else location) / self.nominal_ns
        change = level - 1
        beyond = min(abs(change), 2 * max(0.0, abs(change) - max(self.tolerance, 2 * self.reference_scatter)))
        return 1 + copysign(beyond, change) if beyond and self.may_be_throttled() else 1.0

    def slowed(self, reference_ns: Sequence[float]) -> bool:
        """Return whether the reference is slower than its nominal level by more than `slow_tolerance`.

        And by more than three times what `reference_scatter` says.

        Raises:
            ValueError: there are no samples, or one is not finite.
        """
        return location_interval(reference_ns)[0] > self.nominal_ns * (
            1 + max(self.slow_tolerance, 3 * self.reference_scatter)
        )

    def moved(self, first_ns: Sequence[float], second_ns: Sequence[float]) -> bool:
        """Whether the reference moved between two blocks by more than `step` and its own noise.

        Launches at the same position of the two blocks ran on the same operands and are compared with each other; it
        moved if the 95 % interval of their ratio lies wholly beyond `step`. With 8 launches of 1.5 % scatter
        that finds changes above about 3 %. Fewer than 6 pairs have no such interval and show nothing.

        Raises:
            ValueError: the blocks are of different lengths.
        """
        if len(first_ns) != len(second_ns):
            raise ValueError(f"blocks of {len(first_ns)} and {len(second_ns)} reference launches do not pair")
        if len(first_ns) < FULL_COVERAGE_SAMPLES:
            return False
        _, low, high = location_interval(np.log(second_ns) - np.log(first_ns))
        return low > log1p(self.step) or high < log1p(-self.step)
