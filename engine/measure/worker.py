"""The worker process: it alone holds the GPU. Artifact in, reading out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from gemmtune.engine.measure.process import Last, ProcessPool
from gemmtune.engine.measure.protocols import Protocol
from gemmtune.engine.measure.race import Standing
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import DeviceState, Estimate, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

__all__ = ["FinalJob", "FinalReading", "MeasureJob", "Reading", "Settled", "worker_pool"]

_BENCH = "gemmtune.engine.measure.bench"
_START_SECONDS = 60.0  # imports take 4 s and the bench 1 s (H200 host); a GPU that is lost may hang instead


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One built config to measure."""

    task: Task
    """The task it belongs to."""
    config: Config
    """The config."""
    artifact: Artifact
    """What was built."""
    leader: Standing | None = None
    """The best of the task when the job was made; None where there was none, or without a race."""
    racing: bool = False
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
class Settled:
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

    standings: tuple[Settled, ...]
    """Best first; empty where one that failed has made the GPU unusable for the others."""
    failed: tuple[tuple[int, str], ...] = ()
    """Positions of finalists that failed, with the reason."""


def worker_pool(
    protocol: Protocol,
    spaces: tuple[str, ...],
    deadline_seconds: float,
    *,
    name: str = "GPU 0",
    environment: Mapping[str, str] | None = None,
) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
    """One process on the first GPU it sees, and one that stands by with everything imported.

    Args:
        protocol: how it times.
        spaces: names of the spaces whose kernels it will load.
        deadline_seconds: time a job may run.
        name: the GPU, for messages.
        environment: variables set in the process, which may choose the GPU it sees.
    """
    return ProcessPool(
        partial(_make_bench, protocol),
        1,
        deadline_seconds,
        environment=environment,
        start_seconds=_START_SECONDS,
        name=name,
        attempts=2,  # a process may be killed for no fault of its job
        describe=_describe,
        sends_ahead=True,
        spare_imports=(_BENCH, *dict.fromkeys(type(registry.space(name)).__module__ for name in spaces)),
    )


def _make_bench(
    protocol: Protocol,
) -> Callable[[MeasureJob | FinalJob], Reading | FinalReading | Last[Reading | FinalReading]]:
    from gemmtune.engine.measure.bench import Bench  # torch is loaded in the worker alone

    return Bench(protocol)


def _describe(job: MeasureJob | FinalJob) -> str:
    if isinstance(job, FinalJob):
        return f"the final of {job.finalists[0].task.problem.name}"
    return f"{job.task.key} {job.config}"
