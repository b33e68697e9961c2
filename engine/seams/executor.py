"""An executor: what turns submitted configs into measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task

__all__ = ["FINALISTS", "Executor", "Finished"]

FINALISTS = 8
"""Configs of one problem's searched spaces that meet in its final; the baseline is there besides."""


Finished = Measurement | Final | FinalNotHeld
"""What comes back from an executor."""


class Executor(Protocol):
    """Builders and workers, or what stands in for them.

    Every submitted config comes back exactly once, as a measurement; a failure of the config is one too.
    """

    evidence: Evidence
    """How its numbers come about."""
    parallel: int
    """Workers that time side by side: with more of them, more tasks must be searched at once to keep them busy."""

    def toolchain(self, task: Task) -> Toolchain:
        """The toolchain its measurements of the task will name; with the protocol, what a database is asked for."""

    def protocol(self, task: Task) -> str:
        """The timing protocol its measurements of the task will name."""

    def submit(self, task: Task, config: Config) -> None:
        """Enqueue one evaluation; returns at once."""

    @property
    def settles(self) -> bool:
        """Whether it can hold a final."""

    def settle(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Enqueue a final between configs of one problem that were measured ok; only where `settles`."""

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """What has finished since the last call, in any order.

        Every final that was enqueued comes back once, held or not. Waits up to the timeout for at least one; empty
        when it passed, or when nothing is enqueued.
        """

    def close(self) -> None:
        """End every process; what has not been collected is lost."""
