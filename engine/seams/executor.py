"""An executor: what turns submitted configs into measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task

__all__ = ["FINALISTS", "Executor", "Finished", "Load"]

FINALISTS = 8
"""Configs of one problem's searched spaces that meet in its final; the baseline is there besides."""


@dataclass(frozen=True, slots=True)
class Load:
    """Numbers of configs that an executor has at one moment, and its workers."""

    queued: int
    """Configs that wait for a builder."""
    building: int
    """Configs that are being built, or that a builder takes next."""
    timing: int
    """Configs that are built, and are being timed or wait for it."""
    workers: Mapping[str, bool]
    """Worker's name to whether it has a config to time; lost workers are left out."""


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
    def holds_finals(self) -> bool:
        """Whether it can hold a final."""

    def hold_final(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Enqueue a final between configs of one problem that were measured ok; only where `holds_finals`."""

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """What has finished since the last call, in any order.

        Every final that was enqueued comes back once, held or not. Waits up to the timeout for at least one; empty
        when it passed, or when nothing is enqueued.
        """

    def load(self) -> Load | None:
        """Return the work at hand; None from an executor that answers at once."""

    def close(self) -> None:
        """End every process; what has not been collected is lost."""
