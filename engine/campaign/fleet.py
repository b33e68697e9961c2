"""A fleet: what turns submitted configs into measurements."""

from __future__ import annotations

from typing import Protocol

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task

__all__ = ["Fleet"]


class Fleet(Protocol):
    """Builders and workers, or what stands in for them.

    Every submitted config comes back exactly once, as a measurement; a failure of the config is one too.
    """

    evidence: Evidence
    """How its numbers come about."""

    def toolchain(self, task: Task) -> Toolchain:
        """The toolchain its measurements of the task will name; with the protocol, what a database is asked for."""

    def protocol(self, task: Task) -> str:
        """The timing protocol its measurements of the task will name."""

    def submit(self, task: Task, config: Config) -> None:
        """Enqueue one evaluation; returns at once."""

    def collect(self, timeout_seconds: float) -> list[Measurement]:
        """What has finished since the last call, in any order.

        Waits up to the timeout for at least one; empty when it passed, or when nothing is submitted.
        """

    def close(self) -> None:
        """End every process; what has not been collected is lost."""
