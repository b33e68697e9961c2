"""When a campaign stops searching before every task has spent its evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gemmtune.engine.records.errors import UsageError

__all__ = ["Clock", "Limits"]


@dataclass(frozen=True, slots=True)
class Limits:
    """None for what has no limit. What is being evaluated when time is over is finished, and the finals are held."""

    seconds: float | None = None
    """Wall-clock time of this run of the campaign."""
    gpu_seconds: float | None = None
    """The same, times the GPUs that the executor holds: what they are rented for."""
    regret: float | None = None
    """A task whose regret bound (`expectation.regret_bound`) is at most this fraction is done."""

    def __post_init__(self) -> None:
        """Refuse limits out of bounds."""
        for name in ("seconds", "gpu_seconds", "regret"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name}={value} is not above 0")


class Clock:
    """A campaign's time."""

    def __init__(self, limits: Limits, gpus: int, now: Callable[[], float]) -> None:
        """Begin to count.

        Args:
            limits: the campaign's.
            gpus: GPUs the executor holds.
            now: seconds of a clock that never goes back.
        """
        ends = [limits.seconds, None if limits.gpu_seconds is None else limits.gpu_seconds / gpus]
        self._most = min((end for end in ends if end is not None), default=None)
        self._now = now
        self._began = now()

    @property
    def seconds_left(self) -> float | None:
        """Until searching ends; None where no time is set."""
        return None if self._most is None else max(0.0, self._most - (self._now() - self._began))

    @property
    def over(self) -> bool:
        """Whether searching ends."""
        return self.seconds_left == 0.0
