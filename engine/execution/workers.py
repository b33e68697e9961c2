"""The machines that build and measure, and the provenance of their numbers."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gemmtune.engine.execution.dispatcher import Dispatcher, JobResult
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.processes.process_pool import Loss
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload

Builders = Dispatcher[BuildJob, Artifact | BuildFailure]
"""Dispatcher of builds; the files of the artifacts that it returns are on the driver's machine."""

GpuWorkers = Dispatcher[MeasureJob | FinalJob, Reading | FinalReading]
"""Dispatcher of measurements and finals."""

Done = JobResult[MeasureJob | FinalJob, Reading | FinalReading]
"""A measurement or a final that is over, and its worker."""

_STATUS_OF_LOSS = {Loss.TIMED_OUT: Status.TIMED_OUT, Loss.DIED: Status.RUN_FAILED}


class Machines(Protocol):
    """The builders and GPU workers of one machine or of a cluster."""

    @property
    def builders(self) -> Builders:
        """Dispatcher of the builders."""

    @property
    def workers(self) -> GpuWorkers:
        """Dispatcher of the GPU workers."""

    def wait(self, timeout_seconds: float) -> None:
        """Wait until a dispatcher may have something to collect, or the timeout ends."""

    def close(self) -> None:
        """End every process and delete its files."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Evidence, toolchain and protocol of an executor's numbers."""

    evidence: Evidence
    """Kind of evidence that its measurements carry."""
    holds_finals: bool
    """Whether kernels can be timed against each other."""
    toolchain: Callable[[Task], Toolchain]
    """Returns the toolchain that a measurement of the task names."""
    protocol: Callable[[Task], str]
    """Returns the timing protocol that a measurement of the task names."""


def measured_provenance(toolchains: Mapping[str, Toolchain], protocol_name: str) -> Provenance:
    """Return the provenance of kernels that are timed: a toolchain per space, and one protocol.

    Raises:
        ContractError: no protocol has that name.
    """
    timed = protocol(protocol_name)
    return Provenance(Evidence.MEASURED, timed.holds_finals, lambda task: toolchains[task.space], lambda _: timed.name)


def problem_of(job: MeasureJob | FinalJob) -> Workload:
    """Return the problem whose operands and reference a worker needs for the job."""
    return (job.finalists[0] if isinstance(job, FinalJob) else job).task.problem


def reading_of(done: Done) -> Reading:
    """Return the reading of a measurement, or the one that stands for its loss."""
    if isinstance(done.outcome.result, Reading):
        return done.outcome.result
    assert done.outcome.loss is not None
    return Reading(_STATUS_OF_LOSS[done.outcome.loss], f"run: {done.outcome.reason}")


def ranking_of(done: Done) -> tuple[FinalistReading, ...]:
    """Return the ranking of a final; empty if the final was lost."""
    return done.outcome.result.ranking if isinstance(done.outcome.result, FinalReading) else ()
