"""Define the jobs of a worker process and the readings it returns."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import DeviceState, Estimate, Status
from gemmtune.engine.records.task import Task

__all__ = ["FinalJob", "FinalReading", "FinalistReading", "MeasureJob", "Reading"]


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One built config to measure."""

    task: Task
    """Task of the config."""
    config: Config
    """Config to be measured."""
    artifact: Artifact
    """Artifact that was built for the config."""
    leader: Estimate | None = None
    """Estimate of the task's fastest config when the job was made; None without one, or without early stopping."""
    early_stopping: bool = False
    """Whether launches stop once the config is clearly behind the leader."""


@dataclass(frozen=True, slots=True)
class FinalJob:
    """Built configs of one problem to time against each other."""

    finalists: tuple[MeasureJob, ...]
    """Finalists of one problem, one at least."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Result of a MeasureJob; the fields become those of a Measurement."""

    status: Status
    """Status of the evaluation."""
    reason: str
    """Reason of a failure, as text; empty if the status is ok."""
    samples_ns: tuple[float, ...] = ()
    """Time of each launch in launch order, in nanoseconds."""
    estimate: Estimate | None = None
    """Estimate of the time from the samples."""
    outliers: tuple[int, ...] = ()
    """Positions of the samples that are outliers."""
    drift: float = 1.0
    """Divisor of the drift correction."""
    energy_joules: float | None = None
    """Energy per launch, in joules."""
    error_norm: float | None = None
    """Error against the reference result: ‖out − reference‖ / ‖reference‖."""
    before: DeviceState | None = None
    """State of the device before the first launch."""
    after: DeviceState | None = None
    """State of the device after the last launch."""


@dataclass(frozen=True, slots=True)
class FinalistReading:
    """Result of one finalist; the fields become those of a Finalist."""

    number: int
    """Position among the job's finalists."""
    estimate: Estimate
    """Estimate of the finalist's time."""
    samples_ns: tuple[float, ...]
    """Time of each launch, or the mean over each run of launches, in nanoseconds."""
    behind: tuple[float, float]
    """95 % interval of the time over the leader's, minus 1."""
    run: int = 1
    """Number of launches behind each sample."""


@dataclass(frozen=True, slots=True)
class FinalReading:
    """Result of a FinalJob: the ranking and the failures."""

    ranking: tuple[FinalistReading, ...]
    """Finalists, best first; empty if a failed one has made the GPU unusable for the others."""
    failed: tuple[tuple[int, str], ...] = ()
    """Position of each failed finalist, with the reason."""
