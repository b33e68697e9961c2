"""A fleet of this machine's own: builder processes on its cores, one worker process on its GPU."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from gemmtune.engine.campaign.fleet import FINALISTS, Finished
from gemmtune.engine.campaign.gate import UNBUILT, FailedBuild, built, dropped
from gemmtune.engine.campaign.shelf import Shelf, discard
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.measure.process import Loss, Outcome, ProcessPool, wait_for_any
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.measure.race import Standing
from gemmtune.engine.measure.worker import FinalJob, FinalReading, MeasureJob, Reading, worker_pool
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist, Refuted, Unsettled
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
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
        protocol_name: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        racing: bool = True,
        build_deadline_seconds: float = 60.0,
        run_deadline_seconds: float = 60.0,
    ) -> None:
        """Nothing starts before the first config is submitted: a campaign that is all known needs no process.

        Args:
            spaces: names of the spaces to build for.
            protocol_name: name of the timing protocol.
            builders: builder processes; by default one a core, less the one that feeds the GPU.
            pruners: by name, asked before the build and again between build and measurement.
            racing: whether launches stop once a config is behind the task's best; without, every config gets all.
            build_deadline_seconds: run time of one build.
            run_deadline_seconds: run time of one measurement, or of one final.

        Raises:
            ContractError: no such protocol.
        """
        self._protocol = protocol(protocol_name)
        self._racing = racing and not self._protocol.energy  # the slower config may be the one that needs less energy
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._leaders: dict[Task, Standing] = {}
        self._toolchains = {name: registry.space(name).toolchain() for name in spaces}
        self._worker_name = f"{platform.node()}/gpu0/pid{os.getpid()}"
        self._folder = tempfile.TemporaryDirectory(prefix="gemmtune-")
        self._size = builders or max(len(os.sched_getaffinity(0)) - 1, 1)
        self._build_deadline_seconds = build_deadline_seconds
        self._run_deadline_seconds = run_deadline_seconds
        self._shelf = Shelf(FINALISTS)
        self._finals: dict[Problem, _PendingFinal] = {}
        self._finished: list[Finished] = []
        self._notices: list[str] = []

    @cached_property
    def _worker(self) -> ProcessPool[MeasureJob | FinalJob, Reading | FinalReading]:
        return worker_pool(self._protocol, tuple(self._toolchains), self._run_deadline_seconds)

    @cached_property
    def _builders(self) -> ProcessPool[BuildJob, Artifact | BuildFailure]:
        folder = Path(self._folder.name)
        return builder_pool(tuple(self._toolchains), folder, self._size, self._build_deadline_seconds)

    @property
    def settles(self) -> bool:
        """Whether the protocol can time kernels against each other."""
        return self._protocol.settles

    def toolchain(self, task: Task) -> Toolchain:
        """The installed versions the task's space depends on."""
        return self._toolchains[task.space]

    def protocol(self, task: Task) -> str:
        """The objective's."""
        return self._protocol.name

    def submit(self, task: Task, config: Config) -> None:
        """Queue the build, unless a pruner sees already that it is not worth it; the measurement follows."""
        reason = dropped(self._pruners, Candidate(task, config), self._history.get(task, ()))
        if reason:
            self._finish(task, config, Reading(Status.INVALID, reason), protocol=UNBUILT)
            return
        self._worker  # noqa: B018 (starts while the builders do)
        self._builders.submit(BuildJob(task, config))

    def settle(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Queue a final; binaries that are no longer kept are built again first."""
        self._worker  # noqa: B018 (as above)
        problem = candidates[0][0].problem
        final = self._finals[problem] = _PendingFinal(problem, dict.fromkeys(candidates))
        for task, config in candidates:
            kept = self._shelf.find(task, config)
            if kept is None:
                self._builders.submit(BuildJob(task, config))
            else:
                final.artifacts[task, config] = kept
        self._hold(final)

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """What has finished; waits up to the timeout for at least one."""
        finished = self._collect()
        if not finished and self._started and (self._builders.pending or self._worker.pending):
            wait_for_any([self._builders, self._worker], timeout_seconds)
            finished = self._collect()
        return finished

    def notices(self) -> list[str]:
        """What the pools and the finals had to say."""
        said, self._notices = self._notices, []
        if self._started:
            said += [*self._builders.take_notices(), *self._worker.take_notices()]
        return said

    def close(self) -> None:
        """End every process and delete the binaries."""
        for started in ("_builders", "_worker"):  # each may have failed to start
            if started in self.__dict__:
                getattr(self, started).close()
        self._folder.cleanup()

    @property
    def _started(self) -> bool:
        return "_builders" in self.__dict__ or "_worker" in self.__dict__

    def _collect(self) -> list[Finished]:
        if self._started:
            self._hear()
        finished, self._finished = self._finished, []
        return finished

    def _hear(self) -> None:
        for measured in self._worker.collect():  # first: if it raises, nothing else has been taken and is lost
            if isinstance(measured.job, FinalJob):
                self._after_final(measured.job, measured.result, measured.reason)
            else:
                self._after_run(measured.job, measured.result, measured.loss, measured.reason)
        for outcome in self._builders.collect():
            self._after_build(outcome)

    def _after_build(self, outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> None:
        """Hand the artifact to the worker, or say why there is nothing to hand on."""
        job, result = outcome.job, built(outcome)
        final = self._finals.get(job.task.problem)
        if final is not None and (job.task, job.config) in final.artifacts:
            self._built_again(final, job, result if isinstance(result, Artifact) else None)
        elif isinstance(result, FailedBuild):
            reading = Reading(result.status, result.reason)
            self._finish(job.task, job.config, reading, build_seconds=result.build_seconds)
        else:
            self._measure_or_prune(job, result)

    def _measure_or_prune(self, job: BuildJob, artifact: Artifact) -> None:
        candidate = Candidate(job.task, job.config, artifact)
        reason = dropped(self._pruners, candidate, self._history.get(job.task, ()))
        if reason:
            discard(artifact)
            reading = Reading(Status.INVALID, reason)
            self._finish(job.task, job.config, reading, artifact.resources, artifact.build_seconds)
            return
        leader = self._leaders.get(job.task) if self._racing else None
        self._worker.submit(MeasureJob(job.task, job.config, artifact, leader, self._racing))

    def _after_run(self, job: MeasureJob, result: Reading | FinalReading | None, loss: Loss | None, why: str) -> None:
        if isinstance(result, Reading):
            reading = result
        else:
            assert loss is not None
            reading = Reading(_STATUS_OF_LOSS[loss], f"run: {why}")
        if reading.estimate is None or not self.settles:
            discard(job.artifact)
        else:
            self._shelf.keep(job.task, job.config, job.artifact, reading.estimate.time_ns)
        if reading.estimate is not None:
            best = self._leaders.get(job.task)
            if best is None or reading.estimate.time_ns < best.estimate.time_ns:
                self._leaders[job.task] = Standing(reading.estimate)
        self._finish(job.task, job.config, reading, job.artifact.resources, job.artifact.build_seconds)

    def _built_again(self, final: _PendingFinal, job: BuildJob, artifact: Artifact | None) -> None:
        if artifact is None:
            del final.artifacts[job.task, job.config]
            self._notices.append(f"{job.task.key} {job.config} did not build again for the final")
        else:
            final.artifacts[job.task, job.config] = artifact
        self._hold(final)

    def _hold(self, final: _PendingFinal) -> None:
        """Send the final to the worker once every binary is there."""
        if any(artifact is None for artifact in final.artifacts.values()):
            return
        jobs = [MeasureJob(task, config, a) for (task, config), a in final.artifacts.items() if a is not None]
        if jobs:
            self._worker.submit(FinalJob(tuple(jobs)))
        else:
            del self._finals[final.problem]
            self._finished.append(Unsettled(final.problem, "no finalist was built again"))

    def _after_final(self, job: FinalJob, result: Reading | FinalReading | None, why: str) -> None:
        problem = job.finalists[0].task.problem
        final = self._finals[problem]
        if isinstance(result, FinalReading):
            for number, reason in result.failed:
                failed = job.finalists[number]
                final.refuted.append(Refuted(failed.task, failed.config, reason))
                del final.artifacts[failed.task, failed.config]
            if not result.standings and final.artifacts:
                self._hold(final)  # one has taken the GPU's process with it: the others meet without it
                return
        del self._finals[problem]
        for finalist in job.finalists:
            discard(finalist.artifact)
            self._shelf.clear(finalist.task)
        if isinstance(result, FinalReading) and result.standings:
            self._finished.append(self._final(job, result, tuple(final.refuted)))
        else:
            self._finished.append(Unsettled(problem, why or "no finalist passed its check"))

    def _final(self, job: FinalJob, reading: FinalReading, refuted: tuple[Refuted, ...]) -> Final:
        finalists = []
        for standing in reading.standings:
            of = job.finalists[standing.number]
            toolchain = self.toolchain(of.task)
            finalists.append(
                Finalist(of.task, of.config, toolchain, standing.estimate, standing.samples_ns, standing.behind)
            )
        return Final(tuple(finalists), self._protocol.name, self._worker_name, _now(), refuted)

    def _finish(
        self,
        task: Task,
        config: Config,
        reading: Reading,
        resources: Resources | None = None,
        build_seconds: float | None = None,
        *,
        protocol: str | None = None,
    ) -> None:
        measurement = Measurement(
            task=task,
            config=config,
            status=reading.status,
            evidence=self.evidence,
            protocol=protocol or self._protocol.name,
            toolchain=self.toolchain(task),
            worker=self._worker_name,
            created_at=_now(),
            reason=reading.reason,
            samples_ns=reading.samples_ns,
            estimate=reading.estimate,
            outliers=reading.outliers,
            drift=reading.drift,
            energy_joules=reading.energy_joules,
            error_norm=reading.error_norm,
            before=reading.before,
            after=reading.after,
            resources=resources,
            build_seconds=build_seconds,
        )
        self._history.setdefault(task, []).append(measurement)
        self._finished.append(measurement)


@dataclass(slots=True)
class _PendingFinal:
    """A final whose binaries are being gathered."""

    problem: Problem
    """The GEMM."""
    artifacts: dict[tuple[Task, Config], Artifact | None]
    """Each candidate's binary; None while it is being built."""
    refuted: list[Refuted] = field(default_factory=list)
    """Candidates that failed so far."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
