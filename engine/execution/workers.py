"""Where an executor's builders and workers are: this machine, or a cluster. All else about an executor is the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from gemmtune.engine.execution.dispatcher import Pool
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task

__all__ = ["Builders", "Provenance", "Site", "Workers", "measured_provenance", "problem_of"]

Builders = Pool[BuildJob, Artifact | BuildFailure]
"""What builds; the files of the artifacts it returns are on the driver's machine."""

Workers = Pool[MeasureJob | FinalJob, Reading | FinalReading]
"""What measures."""


class Site(Protocol):
    """Builders and workers that run somewhere."""

    @property
    def builders(self) -> Builders:
        """The builders."""

    @property
    def workers(self) -> Workers:
        """The workers."""

    def wait(self, timeout_seconds: float) -> None:
        """Wait until a pool may have something to collect, or the timeout ends."""

    def close(self) -> None:
        """End every process, and delete what they left."""


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where the numbers of an executor come from."""

    evidence: Evidence
    """How they come about."""
    holds_finals: bool
    """Whether kernels can be timed against each other."""
    toolchain: Callable[[Task], Toolchain]
    """The toolchain that a measurement of the task names."""
    protocol: Callable[[Task], str]
    """The timing protocol that it names."""


def measured_provenance(toolchains: Mapping[str, Toolchain], protocol_name: str) -> Provenance:
    """Those of kernels that are timed: the toolchain of each space, and one protocol.

    Raises:
        ContractError: no such protocol.
    """
    timed = protocol(protocol_name)
    return Provenance(Evidence.MEASURED, timed.holds_finals, lambda task: toolchains[task.space], lambda _: timed.name)


def problem_of(job: MeasureJob | FinalJob) -> Problem:
    """The problem whose operands and reference a worker needs for a job."""
    return (job.finalists[0] if isinstance(job, FinalJob) else job).task.problem
