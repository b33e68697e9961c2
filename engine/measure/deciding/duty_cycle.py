"""Launches on clocks that nothing holds back: the GPU gets rest before its power limit sets in, and where it has."""

from __future__ import annotations

from collections.abc import Callable

from gemmtune.engine.measure.deciding.blocks import Block, Timer
from gemmtune.engine.measure.deciding.clock_drift import Drift

__all__ = ["DutyCycle", "DutyCycleTimer"]

_RESTS_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08)
"""One after the other, until the reference is as fast as it was. The first is short: of the blocks of kernels of 10 to
20 µs, one in ten is slow on some GPUs although nothing holds the clocks back, and the next one is not (H200,
2026-11-22)."""


class DutyCycle:
    """Keeps the GPU's share of busy time low over tens of milliseconds.

    GEMMs without a pause draw an H200 into its power limit within 12 to 25 ms; whatever is timed in the next tens of
    milliseconds is up to 21 % slower, one kernel more than the other. Two passes over 200 configs agree to 0.55 % in
    the median and 2.7 % at the 95th percentile where the GPU is busy for half of the time, to 0.25 and 1.7 % where it
    rests for most of it (2026-11-21).
    """

    def __init__(
        self,
        now: Callable[[], float],
        rest: Callable[[float], None],
        duty: float = 0.15,
        burst_seconds: float = 0.004,
    ) -> None:
        """Start rested.

        Args:
            now: a clock, in seconds.
            rest: waits for so many seconds.
            duty: share of the time that the GPU may be busy.
            burst_seconds: busy time beyond that share before a rest is due.
        """
        self._now = now
        self._rest = rest
        self._duty = duty
        self._burst_seconds = burst_seconds
        self._debt_seconds = 0.0
        self._at = now()

    def add_busy(self, busy_seconds: float) -> None:
        """The GPU was busy for so long, until now; rests where that was too much."""
        self._recover()
        self._debt_seconds += busy_seconds
        if self._debt_seconds > self._burst_seconds:
            self._rest((self._debt_seconds - self._burst_seconds / 2) / self._duty)
            self._recover()

    def _recover(self) -> None:
        now = self._now()
        self._debt_seconds = max(0.0, self._debt_seconds - self._duty * (now - self._at))
        self._at = now


class DutyCycleTimer:
    """A timer that paces its blocks; one whose reference was slow all the same is set aside, and measured again."""

    def __init__(self, timer: Timer, drift: Drift, duty_cycle: DutyCycle, rest: Callable[[float], None]) -> None:
        """Use `timer` for one kernel; `rest` waits for so many seconds."""
        self._timer = timer
        self._drift = drift
        self._duty_cycle = duty_cycle
        self._rest = rest
        self._rests = list(_RESTS_SECONDS)
        self.slow_blocks: list[Block] = []

    def single(self) -> Block:
        """One launch of each, whatever the clocks: it decides about large differences alone."""
        return self._timer.single()

    def block(self, number: int) -> Block:
        """A block on calm clocks; once the rests for this kernel are used up, on such as there are."""
        block = self._paced(number)
        while self._rests and self._drift.slowed(block.reference_ns):
            self.slow_blocks.append(block)
            self._rest(self._rests.pop(0))
            block = self._paced(number)
        return block

    def _paced(self, number: int) -> Block:
        block = self._timer.block(number)
        self._duty_cycle.add_busy(block.busy_ns / 1e9)
        return block
