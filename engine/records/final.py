"""The last few configs of a problem, timed in alternating rounds: who leads, who ties, and how wrong that can be."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task

__all__ = ["FailedFinalist", "Final", "FinalNotHeld", "Finalist"]


@dataclass(frozen=True, slots=True)
class Finalist:
    """One config of a final."""

    task: Task
    """The task it belongs to; the finalists of one final may come from several spaces."""
    config: Config
    """The config."""
    toolchain: Toolchain
    """The versions that built it."""
    estimate: Estimate
    """The time of one launch, from the final's samples alone."""
    samples_ns: tuple[float, ...]
    """Time of each launch in launch order, or the mean of each run; fewer than the leader's where it was out early."""
    behind: tuple[float, float]
    """95 % interval of its time over the leader's, minus 1, from paired samples; (0, 0) for the leader itself."""
    run: int = 1
    """Launches that each sample is of: of short kernels as many as run one after the other between two events."""


@dataclass(frozen=True, slots=True)
class FailedFinalist:
    """A config that was ok when it was measured, and was not when it was checked again."""

    task: Task
    """The task it belongs to."""
    config: Config
    """The config."""
    reason: str
    """What was wrong."""


@dataclass(frozen=True, slots=True)
class Final:
    """A finished final: one problem, one GPU, one go."""

    finalists: tuple[Finalist, ...]
    """The leader first, then by time."""
    protocol: str
    """Name of the timing protocol."""
    worker: str
    """Who measured: host, GPU and process."""
    created_at: str
    """UTC time, ISO 8601 with seconds."""
    failed: tuple[FailedFinalist, ...] = ()
    """Finalists that failed the check."""

    @property
    def problem(self) -> Problem:
        """The GEMM."""
        return self.finalists[0].task.problem

    @property
    def device(self) -> Device:
        """The GPU."""
        return self.finalists[0].task.device

    @property
    def leader(self) -> Finalist:
        """The finalist of the lowest time."""
        return self.finalists[0]

    @property
    def tie_band(self) -> tuple[Finalist, ...]:
        """The leader and those it does not beat beyond the noise."""
        return tuple(f for f in self.finalists if f.behind[0] <= 0)

    @property
    def regret_bound(self) -> float:
        """How much slower than the best finalist the leader may be, as a fraction, at the 95 % of the intervals."""
        return max(0.0, *(-f.behind[0] for f in self.finalists))


@dataclass(frozen=True, slots=True)
class FinalNotHeld:
    """A final that was not held; what was measured before still ranks the problem."""

    problem: Problem
    """The GEMM."""
    reason: str
    """Why not."""
