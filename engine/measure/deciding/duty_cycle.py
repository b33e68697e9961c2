"""Keep the GPU's duty cycle low, so that no power limit slows the launches that are timed."""

from collections.abc import Callable

from gemmtune.engine.measure.deciding.blocks import Block, Timer
from gemmtune.engine.measure.deciding.clock_drift import Drift

DUTY = 0.15
"""Share of busy GPU time from which on more rest changes nothing; see experiments/measurement."""

_BURST_SECONDS = 0.004
"""Busy time beyond that share before a rest is due, in seconds."""
_RESTS_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.08)
"""Rests before a slow block is measured again, in seconds; the first is short, for blocks that no clock explains."""


class DutyCycle:
    """Keep the share of busy GPU time low over tens of milliseconds; see experiments/measurement."""

    def __init__(self, now: Callable[[], float], rest: Callable[[float], None]) -> None:
        """Start with a rested GPU; `now` is a clock and `rest` waits, both in seconds."""
        self._now = now
        self._rest = rest
        self._excess_seconds = 0.0
        self._updated_at = now()

    def add_busy(self, busy_seconds: float) -> None:
        """Record that the GPU was busy for this long until now, and rest if that exceeds the burst."""
        self._update()
        self._excess_seconds += busy_seconds
        if self._excess_seconds > _BURST_SECONDS:
            self._rest((self._excess_seconds - _BURST_SECONDS / 2) / DUTY)
            self._update()

    def _update(self) -> None:
        now = self._now()
        self._excess_seconds = max(0.0, self._excess_seconds - DUTY * (now - self._updated_at))
        self._updated_at = now


class DutyCycleTimer:
    """Timer of one kernel that rests between blocks and measures a block again if its reference was slow."""

    def __init__(self, timer: Timer, drift: Drift, duty_cycle: DutyCycle, rest: Callable[[float], None]) -> None:
        self._timer = timer
        self._drift = drift
        self._duty_cycle = duty_cycle
        self._rest = rest
        self._rests = list(_RESTS_SECONDS)
        self.slow_blocks: list[Block] = []

    def single(self) -> Block:
        """Launch both kernels once, whatever the clocks do; one launch decides about large differences alone."""
        return self._timer.single()

    def block(self, number: int) -> Block:
        """Time a block on fast clocks; once this kernel's rests are used up, on the clocks there are."""
        block = self._timed(number)
        while self._rests and self._drift.slowed(block.reference_ns):
            self.slow_blocks.append(block)
            self._rest(self._rests.pop(0))
            block = self._timed(number)
        return block

    def _timed(self, number: int) -> Block:
        block = self._timer.block(number)
        self._duty_cycle.add_busy(block.busy_ns / 1e9)
        return block
