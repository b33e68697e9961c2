"""Builders and workers that answer from recorded landscapes: all of an executor but the compiler and the GPU."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Generic, TypeVar

from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.ray.cluster import Cluster, Node
from gemmtune.engine.execution.ray.executor import RaySite, Seat
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.execution.workers import Provenance
from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob, Reading
from gemmtune.engine.processes.process_pool import Notify, Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import Finished, Load

__all__ = ["SimulatedExecutor"]

J = TypeVar("J")
R = TypeVar("R")

_BATCH = 16
"""An answer takes less time than a call: with one job a call, 64 workers on two cores give 300 results a second, so
many at a time 1,150."""


class SimulatedExecutor(ReplayExecutor):
    """Answers as `ReplayExecutor` does, by way of a cluster's actors."""

    def __init__(
        self,
        landscapes: Sequence[Landscape],
        cluster: Cluster,
        *,
        workers: int,
        builders: int = 1,
        seconds: float = 0.0,
        binary_bytes: int = 0,
        notify: Notify = log_notice,
    ) -> None:
        """Start nothing yet; the executor closes the cluster.

        Args:
            landscapes: answer from these; where two hold one task, the first does.
            cluster: where.
            workers: actors of a node that answer for a GPU.
            builders: actors of a node that answer for a compiler.
            seconds: how long a build and a measurement take.
            binary_bytes: size of the file that a builder hands to a worker; without one, no file travels.
            notify: receives a line for each thing that a person should know.
        """
        super().__init__(landscapes)
        self.parallel = workers * max(len(cluster.nodes()), 1)
        self._cluster = cluster
        build = partial(_simulated, partial(_build, ReplayExecutor(landscapes), seconds, binary_bytes))
        measure = partial(_simulated, partial(_measure, ReplayExecutor(landscapes), seconds))

        def seating(node: Node) -> tuple[list[Seat], list[Seat]]:
            name = f"{node.host}/{node.id[:6]}/replay"
            return (
                [Seat(f"{name}-builder{number}", build) for number in range(builders)],
                [Seat(f"{name}-worker{number}", measure) for number in range(workers)],
            )

        batch = 1 if seconds else _BATCH
        site = partial(RaySite, cluster, seating, ahead=2 * batch, batch=batch, homes=False, notify=notify)
        provenance = Provenance(self.evidence, self.holds_finals, self.toolchain, self.protocol)
        self._executor = BuildMeasurePipeline(provenance, site, self.parallel, notify=notify)

    def submit(self, task: Task, config: Config) -> None:
        """Send it to a builder, and then to a worker."""
        self._executor.submit(task, config)

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """What has come back; waits up to the timeout for at least one."""
        return self._executor.collect(timeout_seconds)

    def load(self) -> Load:
        """What is under way."""
        return self._executor.load()

    def close(self) -> None:
        """End the actors and the connection."""
        self._executor.close()
        self._cluster.close()


class _Simulated(Generic[J, R]):
    """A place that does each job when it is collected."""

    size = 1

    def __init__(self, handler: Callable[[J], R]) -> None:
        self._handler = handler
        self._jobs: list[J] = []

    def submit(self, job: J) -> None:
        self._jobs.append(job)

    def collect(self) -> list[Outcome[J, R]]:
        jobs, self._jobs = self._jobs, []
        return [Outcome(job, self._handler(job)) for job in jobs]

    def connections(self) -> list[Connection]:
        return []

    def next_deadline(self) -> float:
        return 0.0

    def close(self) -> None:
        self._jobs = []


def _simulated(handler: Callable[[Path, J], R], folder: Path, _notify: Notify) -> _Simulated[J, R]:
    return _Simulated(partial(handler, folder))


def _build(recorded: ReplayExecutor, seconds: float, binary_bytes: int, folder: Path, job: BuildJob) -> Artifact:
    """An artifact of any config: whether it was built, its measurement says."""
    time.sleep(seconds)
    answer = _answer(recorded, job.task, job.config)
    key = f"{job.task.key}/{job.config.digest}"
    content = hashlib.shake_256(key.encode()).digest(binary_bytes)
    path = folder / f"{hashlib.sha256(key.encode()).hexdigest()}.bin"
    if content:
        path.write_bytes(content)
    return Artifact(
        key=key,
        space=job.task.space,
        path=str(path) if content else "",
        digest=hashlib.sha256(content).hexdigest(),
        launch=(),
        resources=answer.resources,
        build_seconds=answer.build_seconds or 0.0,
        toolchain=answer.toolchain,
    )


def _measure(recorded: ReplayExecutor, seconds: float, _folder: Path, job: MeasureJob | FinalJob) -> Reading:
    """The recorded reading; of a binary that is not the one that was built, a wrong result."""
    assert isinstance(job, MeasureJob), "a final of recorded kernels was asked for"
    time.sleep(seconds)
    artifact = job.artifact
    if artifact.path and hashlib.sha256(Path(artifact.path).read_bytes()).hexdigest() != artifact.digest:
        return Reading(Status.WRONG_RESULT, "the binary is not the one that was built")
    answer = _answer(recorded, job.task, job.config)
    return Reading(answer.status, answer.reason, answer.samples_ns, answer.estimate)


def _answer(recorded: ReplayExecutor, task: Task, config: Config) -> Measurement:
    recorded.submit(task, config)
    (answer,) = recorded.collect(0.0)
    assert isinstance(answer, Measurement)
    return answer
