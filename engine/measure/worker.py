"""The worker process: it alone holds the GPU. Artifact in, reading out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from gemmtune.engine.measure.process import Last, ProcessPool
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import DeviceState, Status
from gemmtune.engine.records.task import Task

__all__ = ["MeasureJob", "Reading", "worker_pool"]


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """One built config to measure."""

    task: Task
    """The task it belongs to."""
    config: Config
    """The config."""
    artifact: Artifact
    """What was built."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the worker saw; the fields are Measurement's."""

    status: Status
    """How it ended."""
    reason: str
    """Why not ok; empty when ok."""
    samples_ns: tuple[float, ...] = ()
    """Time of each launch in launch order."""
    error_norm: float | None = None
    """Error against the reference."""
    before: DeviceState | None = None
    """The device before the first launch."""
    after: DeviceState | None = None
    """The device after the last launch."""


def worker_pool(protocol: str, deadline_seconds: float) -> ProcessPool[MeasureJob, Reading]:
    """One process on the first visible GPU, timing by `protocol`; a job may run for `deadline_seconds`."""
    return ProcessPool(partial(_make_bench, protocol), 1, deadline_seconds)


def _make_bench(protocol: str) -> Callable[[MeasureJob], Reading | Last[Reading]]:
    from gemmtune.engine.measure.bench import Bench  # torch is loaded in the worker alone

    return Bench(protocol)
