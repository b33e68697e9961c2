"""Jobs for a worker process, and the readings it returns."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.measure.deciding.screening import Leader
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import DeviceState, Estimate, Status
from gemmtune.engine.records.task import Task

__all__ = ["FinalJob", "FinalReading", "FinalistReading", "MeasureJob", "Reading"]


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One built config to measure."""

    task: Task
    """The task it belongs to."""
    config: Config
    """The config."""
    artifact: Artifact
    """What was built."""
    leader: Leader | None = None
    """The best of the task when the job was made; None where there was none, or without a race."""
    early_stopping: bool = False
    """Whether launches stop once the config is behind the best; without, it gets all."""


@dataclass(frozen=True, slots=True)
class FinalJob:
    """Built configs of one problem to time against each other."""

    finalists: tuple[MeasureJob, ...]
    """At least one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the worker saw; the fields are Measurement's."""

    status: Status
    """How it ended."""
    reason: str
    """Why not ok; empty when ok."""
    samples_ns: tuple[float, ...] = ()
    """Time of each launch in launch order."""
    estimate: Estimate | None = None
    """What the protocol makes of them."""
    outliers: tuple[int, ...] = ()
    """Positions of samples far off the others."""
    drift: float = 1.0
    """The reference kernel's time beside the samples, over its nominal time."""
    energy_joules: float | None = None
    """Energy of one launch."""
    error_norm: float | None = None
    """Error against the reference."""
    before: DeviceState | None = None
    """The device before the first launch."""
    after: DeviceState | None = None
    """The device after the last launch."""


@dataclass(frozen=True, slots=True)
class FinalistReading:
    """One finalist's standing; the fields are Finalist's."""

    number: int
    """Position in the job's finalists."""
    estimate: Estimate
    """Its time."""
    samples_ns: tuple[float, ...]
    """Time of each launch, or the mean of each run of launches."""
    behind: tuple[float, float]
    """Interval of its time over the leader's, minus 1."""
    run: int = 1
    """Launches that each sample is of."""


@dataclass(frozen=True, slots=True)
class FinalReading:
    """What came of a final."""

    ranking: tuple[FinalistReading, ...]
    """Best first; empty where one that failed has made the GPU unusable for the others."""
    failed: tuple[tuple[int, str], ...] = ()
    """Positions of finalists that failed, with the reason."""
