"""Follow the GPU's clocks by the reference kernel: when they are steady, and how far they have drifted since."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import copysign, log1p

import numpy as np

from gemmtune.engine.statistics import FULL_COVERAGE_SAMPLES, location_interval

_READINGS = 5
_LEAST_SECONDS = 0.4  # load before which no agreement counts, because clocks fall at first
_MOST_SECONDS = 3.0  # load after which waiting ends in any case
_TOLERANCE = 0.005  # largest span of the last readings, as a share of the lowest, that counts as agreement


class WarmUp:
    """Decide when the clocks are steady, from readings of the reference kernel under uninterrupted load.

    Each reading must be the location of many launches, so that its own noise is far below the tolerance.
    """

    def __init__(self, started_seconds: float) -> None:
        """Start at the beginning of the load, on the clock that times the readings."""
        self._started_seconds = started_seconds
        self._loaded_seconds = 0.0
        self._last: deque[float] = deque(maxlen=_READINGS)

    def add(self, reading_ns: float, at_seconds: float) -> None:
        """Take a reading, and the time at which it ended."""
        self._last.append(reading_ns)
        self._loaded_seconds = at_seconds - self._started_seconds

    @property
    def done(self) -> bool:
        """Whether waiting should end: the last 5 readings agree after the least load, or the longest wait is over."""
        if self._loaded_seconds >= _MOST_SECONDS:
            return True
        if self._loaded_seconds < _LEAST_SECONDS or len(self._last) < _READINGS:
            return False
        return max(self._last) / min(self._last) - 1 <= _TOLERANCE


@dataclass(frozen=True, slots=True)
class Drift:
    """Clock drift since a problem was set up, by the reference kernel's time; evidence in experiments/measurement."""

    nominal_ns: float
    """Location of the reference kernel's time when the problem was set up, in nanoseconds."""
    reference_scatter: float = 0.0
    """Standard deviation of the reference's level from candidate to candidate on equal clocks, as a share of it."""
    tolerance: float = field(default=0.03, kw_only=True)
    """Change of the reference's time, as a share of it, below which a correction adds more noise than it removes."""
    step: float = field(default=0.01, kw_only=True)
    """Smallest change between two blocks of one candidate, as a share, that counts as a step of the clocks."""
    slow_tolerance: float = field(default=0.05, kw_only=True)
    """Slowness of the reference, as a share of its nominal time, beyond which a block is measured again."""
    may_be_throttled: Callable[[], bool] = field(default=lambda: True, kw_only=True)
    """Function that returns whether anything may limit the clocks now; while nothing does, no time is corrected."""

    def factor(self, reference_ns: Sequence[float]) -> float:
        """Return the divisor for times measured beside these reference launches; 1 if the clocks have not moved.

        Beyond twice the tolerance the divisor is the reference's location over its nominal level. From the tolerance
        on it rises from 1 without a jump. The tolerance is at least twice `reference_scatter`.

        For fewer than 6 launches the fastest replaces the location: one late launch would move the location and make
        the candidate look fast, while no launch is early by chance.

        Raises:
            ValueError: there are no samples, or a sample is not finite.
        """
        location, fastest, _ = location_interval(reference_ns)
        level = (fastest if len(reference_ns) < FULL_COVERAGE_SAMPLES else location) / self.nominal_ns
        change = level - 1
        beyond = min(abs(change), 2 * max(0.0, abs(change) - max(self.tolerance, 2 * self.reference_scatter)))
        return 1 + copysign(beyond, change) if beyond and self.may_be_throttled() else 1.0

    def slowed(self, reference_ns: Sequence[float]) -> bool:
        """Return whether the reference is slower than its nominal level by more than `slow_tolerance`.

        The bound is at least three times `reference_scatter`.
        """
        bound = max(self.slow_tolerance, 3 * self.reference_scatter)
        return location_interval(reference_ns)[0] > self.nominal_ns * (1 + bound)

    def moved(self, first_ns: Sequence[float], second_ns: Sequence[float]) -> bool:
        """Return whether the reference moved between two blocks by more than `step` and its own noise.

        Launches at one position of both blocks ran on the same operands and are compared with each other. The
        reference moved if the 95 % interval of their ratio lies wholly beyond `step`; fewer than 6 pairs show nothing.

        Raises:
            ValueError: the blocks have different lengths.
        """
        if len(first_ns) != len(second_ns):
            raise ValueError(f"blocks of {len(first_ns)} and {len(second_ns)} reference launches do not pair")
        if len(first_ns) < FULL_COVERAGE_SAMPLES:
            return False
        _, low, high = location_interval(np.log(second_ns) - np.log(first_ns))
        return low > log1p(self.step) or high < log1p(-self.step)
