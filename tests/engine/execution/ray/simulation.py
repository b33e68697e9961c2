"""An executor whose builders and workers are real actors that answer from recorded landscapes.

It is all of a Ray executor but the compiler and the GPU; experiments use it too.
"""

from __future__ import annotations

import hashlib
import sys
import time
from functools import partial
from pathlib import Path

import ray
from ray import cloudpickle

from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.ray.executor import ActorPlan, RayMachines
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.execution.workers import Provenance
from gemmtune.engine.measure.jobs import MeasureJob, Reading
from gemmtune.engine.processes.process_pool import Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.measurement import Status

cloudpickle.register_pickle_by_value(sys.modules[__name__])  # actors need not find this file


class SimulatedExecutor(BuildMeasurePipeline):
    """Answers as `ReplayExecutor` does, by way of a cluster's actors."""

    def __init__(
        self,
        landscapes,
        cluster,
        *,
        workers,
        builders=1,
        seconds=0.0,
        binary_bytes=0,
        notify=log_notice,
    ) -> None:
        """Prepare the executor; `close` closes the cluster too.

        Args:
            landscapes: answer from these; the first of several for one task counts.
            cluster: connection to the cluster.
            workers: actors per node that answer for a GPU.
            builders: actors per node that answer for a compiler.
            seconds: duration of a build and of a measurement.
            binary_bytes: size of the file that a builder hands to a worker; 0 for no file.
            notify: receives lines that a person should read.
        """
        recorded = ReplayExecutor(landscapes)
        self._cluster = cluster
        # The landscapes travel once, however many actors hold them.
        build = ray.put(partial(SimulatedWorker, partial(_build, recorded, seconds, binary_bytes)))
        measure = ray.put(partial(SimulatedWorker, partial(_measure, recorded, seconds)))

        def plan_actors(node):
            name = f"{node.host}/{node.id[:6]}/replay"
            return (
                [ActorPlan(f"{name}-builder{number}", build) for number in range(builders)],
                [ActorPlan(f"{name}-worker{number}", measure) for number in range(workers)],
            )

        super().__init__(
            Provenance(recorded.evidence, False, recorded.toolchain, recorded.protocol),
            partial(RayMachines, cluster, plan_actors, affinity=False, notify=notify),
            workers * max(len(cluster.nodes()), 1),
            notify=notify,
        )

    def close(self) -> None:
        super().close()
        self._cluster.close()


class SimulatedWorker:
    """A worker that runs its jobs when it is asked for results."""

    size = 1

    def __init__(self, handler, folder, notify) -> None:
        self.handler, self.folder, self.jobs = handler, folder, []

    def submit(self, job):
        self.jobs.append(job)

    def collect(self):
        jobs, self.jobs = self.jobs, []
        return [Outcome(job, self.handler(self.folder, job)) for job in jobs]

    def fileno(self):
        return 2  # any file: the deadline is over

    def next_deadline(self):
        return 0.0

    def close(self):
        self.jobs = []


def _build(recorded, seconds, binary_bytes, folder, job):
    """An artifact of any config: its measurement says whether it was built."""
    time.sleep(seconds)
    answer = recorded.recorded(job.task, job.config)
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


def _measure(recorded, seconds, _folder, job):
    """The recorded reading; a wrong result if the binary is not the one that was built."""
    assert isinstance(job, MeasureJob), "recorded kernels hold no final"
    time.sleep(seconds)
    artifact = job.artifact
    if artifact.path and hashlib.sha256(Path(artifact.path).read_bytes()).hexdigest() != artifact.digest:
        return Reading(Status.WRONG_RESULT, "the binary is not the one that was built")
    answer = recorded.recorded(job.task, job.config)
    return Reading(answer.status, answer.reason, answer.samples_ns, answer.estimate)
