"""A fleet of this machine's own: builder processes on its cores, one worker process on its GPU."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.measure.process import Loss, Outcome, ProcessPool, wait_for_any
from gemmtune.engine.measure.worker import MeasureJob, Reading, worker_pool
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["LocalFleet"]

_STATUS_OF_LOSS = {Loss.TIMED_OUT: Status.TIMED_OUT, Loss.DIED: Status.RUN_FAILED}


class LocalFleet:
    """Builds on the CPU while the GPU times; a crash or a hang costs one process and one config."""

    evidence = Evidence.MEASURED

    def __init__(
        self,
        spaces: Sequence[str],
        protocol: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        build_deadline_seconds: float = 60.0,
        run_deadline_seconds: float = 60.0,
    ) -> None:
        """Nothing starts before the first config is submitted: a campaign that is all known needs no process.

        Args:
            spaces: names of the spaces to build for.
            protocol: name of the timing protocol.
            builders: builder processes; by default one a core, less the one that feeds the GPU.
            pruners: by name, asked between build and measurement.
            build_deadline_seconds: run time of one build.
            run_deadline_seconds: run time of one measurement.
        """
        self._protocol = protocol
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._toolchains = {name: registry.space(name).toolchain() for name in spaces}
        self._worker_name = f"{platform.node()}/gpu0/pid{os.getpid()}"
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        self._size = builders or max(len(os.sched_getaffinity(0)) - 1, 1)
        self._build_deadline_seconds = build_deadline_seconds
        self._run_deadline_seconds = run_deadline_seconds

    @cached_property
    def _worker(self) -> ProcessPool[MeasureJob, Reading]:
        return worker_pool(self._protocol, self._run_deadline_seconds)

    @cached_property
    def _builders(self) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
        folder = Path(self._folder.name)
        return builder_pool(tuple(self._toolchains), folder, self._size, self._build_deadline_seconds)

    def toolchain(self, task: Task) -> Toolchain:
        """The installed versions the task's space depends on."""
        return self._toolchains[task.space]

    def protocol(self, task: Task) -> str:
        """The objective's."""
        return self._protocol

    def submit(self, task: Task, config: Config) -> None:
        """Queue the build; the measurement follows."""
        self._worker  # noqa: B018 (starts while the builders do)
        self._builders.submit(BuildJob(task, config))

    def collect(self, timeout_seconds: float) -> list[Measurement]:
        """What has finished; waits up to the timeout for at least one."""
        if not self._started:
            return []
        finished = self._collect()
        if not finished and (self._builders.pending or self._worker.pending):
            wait_for_any([self._builders, self._worker], timeout_seconds)
            finished = self._collect()
        for measurement in finished:
            self._history.setdefault(measurement.task, []).append(measurement)
        return finished

    def close(self) -> None:
        """End every process and delete the binaries."""
        for started in ("_builders", "_worker"):  # each may have failed to start
            if started in self.__dict__:
                getattr(self, started).close()
        self._folder.cleanup()

    @property
    def _started(self) -> bool:
        return "_builders" in self.__dict__

    def _collect(self) -> list[Measurement]:
        built = [self._after_build(outcome) for outcome in self._builders.collect()]
        measured = [self._after_run(outcome) for outcome in self._worker.collect()]
        return [measurement for measurement in (*built, *measured) if measurement is not None]

    def _after_build(self, outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> Measurement | None:
        """Hand the artifact to the worker, or say why there is nothing to hand on."""
        job, result = outcome.job, outcome.result
        if result is None:
            status = Status.TIMED_OUT if outcome.loss is Loss.TIMED_OUT else Status.BUILD_FAILED
            return self._measurement(job.task, job.config, Reading(status, f"build: {outcome.reason}"))
        if isinstance(result, BuildFailure):
            reading = Reading(Status.BUILD_FAILED, result.reason)
            return self._measurement(job.task, job.config, reading, build_seconds=result.build_seconds)
        candidate = Candidate(job.task, job.config, result)
        for name, pruner in self._pruners.items():
            verdict = pruner.judge(candidate, self._history.get(job.task, ()))
            if not verdict:
                _discard(result)
                reading = Reading(Status.INVALID, f"pruned by {name}: {verdict.reason}")
                return self._measurement(job.task, job.config, reading, result.resources, result.build_seconds)
        self._worker.submit(MeasureJob(job.task, job.config, result))
        return None

    def _after_run(self, outcome: Outcome[MeasureJob, Reading]) -> Measurement:
        job, reading = outcome.job, outcome.result
        if reading is None:
            assert outcome.loss is not None
            reading = Reading(_STATUS_OF_LOSS[outcome.loss], f"run: {outcome.reason}")
        _discard(job.artifact)
        return self._measurement(job.task, job.config, reading, job.artifact.resources, job.artifact.build_seconds)

    def _measurement(
        self,
        task: Task,
        config: Config,
        reading: Reading,
        resources: Resources | None = None,
        build_seconds: float | None = None,
    ) -> Measurement:
        return Measurement(
            task=task,
            config=config,
            status=reading.status,
            evidence=self.evidence,
            protocol=self._protocol,
            toolchain=self.toolchain(task),
            worker=self._worker_name,
            created_at=datetime.now(UTC).isoformat(timespec="seconds"),
            reason=reading.reason,
            samples_ns=reading.samples_ns,
            error_norm=reading.error_norm,
            before=reading.before,
            after=reading.after,
            resources=resources,
            build_seconds=build_seconds,
        )


def _discard(artifact: Artifact) -> None:
    """Delete the binary of a measured config: a sweep of a space leaves thousands."""
    if artifact.path:
        Path(artifact.path).unlink(missing_ok=True)
