"""Which worker can no longer be trusted with a time."""

from __future__ import annotations

from collections import Counter

__all__ = ["DriftWatch"]

_MOST_DRIFT = 0.15
"""Chosen, not measured: near the top of the 5 to 20 % by which a power limit lowers clocks for a moment (one H200,
experiments/measurement), and beyond what a time beside a reference should be asked to make good for long."""

_IN_A_ROW = 16
"""Chosen, too: a moment is over by then."""


class DriftWatch:
    """Counts each worker's measurements in a row beside which the reference kernel was off its nominal time."""

    def __init__(self) -> None:
        """Nothing seen."""
        self._off: Counter[str] = Counter()

    def saw(self, worker: str, drift: float) -> str:
        """Why the worker is no longer to be trusted; empty while it is. Once told, the count begins anew.

        Args:
            worker: the one that measured.
            drift: the reference kernel's time beside the samples, over its nominal time.
        """
        if abs(drift - 1.0) <= _MOST_DRIFT:
            del self._off[worker]
            return ""
        self._off[worker] += 1
        if self._off[worker] < _IN_A_ROW:
            return ""
        del self._off[worker]
        return f"its reference kernel took {drift:.2f} times its nominal time, {_IN_A_ROW} measurements in a row"
