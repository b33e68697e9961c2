"""Finds workers whose times can no longer be trusted."""

from collections import Counter

_MOST_DRIFT = 0.15
"""Largest trusted change of the reference kernel's time. Chosen: a power limit lowers clocks by 5 to 20 % for a moment
(see experiments/measurement)."""

_IN_A_ROW = 16
"""Measurements beyond `_MOST_DRIFT` in a row that disqualify a worker. Chosen: a moment is over by then."""


class DriftMonitor:
    """Counts each worker's consecutive measurements in which the reference kernel was off its nominal time."""

    def __init__(self) -> None:
        """Start without any measurement."""
        self._off: Counter[str] = Counter()

    def check(self, worker: str, drift: float) -> str:
        """Return why the worker can no longer be trusted, or an empty string; reporting restarts the count.

        `drift` is the reference kernel's time beside the samples, over its nominal time.
        """
        if abs(drift - 1.0) <= _MOST_DRIFT:
            del self._off[worker]
            return ""
        self._off[worker] += 1
        if self._off[worker] < _IN_A_ROW:
            return ""
        del self._off[worker]
        return f"its reference kernel took {drift:.2f} times its nominal time, {_IN_A_ROW} measurements in a row"
