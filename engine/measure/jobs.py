"""Define the jobs of a worker process and the readings it returns."""

from dataclasses import dataclass

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Estimate, Reading
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
class FinalistReading:
    """Result of one finalist; the fields become those of a Finalist."""

    number: int
    """Position among the job's finalists."""
    estimate: Estimate
    """Estimate of the finalist's time.

    The leader's time is the location of its samples at the clocks of the final. Other times are the leader's time by
    the paired ratio, which is free of drift. Their intervals are those of the finalist's own samples.
    """
    samples_ns: tuple[float, ...]
    """Time of each launch in launch order, or the mean over each run, in nanoseconds, uncorrected."""
    behind: tuple[float, float]
    """95 % interval of the time over the leader's, minus 1, from paired samples; (0, 0) for the leader itself."""
    run: int = 1
    """Number of launches behind each sample."""
    reference_ns: tuple[float, ...] = ()
    """Time of the reference kernel's launch beside each sample, in nanoseconds."""


@dataclass(frozen=True, slots=True)
class FinalReading:
    """Result of a FinalJob: the ranking and the failures."""

    ranking: tuple[FinalistReading, ...]
    """Finalists, best first; empty if a failed one has made the GPU unusable for the others."""
    failed: tuple[tuple[int, str], ...] = ()
    """Position of each failed finalist, with the reason."""
