"""What every executor that builds and measures does, wherever its builders and workers are."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

from gemmtune.engine.execution.artifact_cache import ArtifactCache, discard
from gemmtune.engine.execution.build_queue import BuildQueue
from gemmtune.engine.execution.dispatcher import Done
from gemmtune.engine.execution.drift_monitor import DriftMonitor
from gemmtune.engine.execution.pruning import UNBUILT, FailedBuild, build_result, pruning_reason
from gemmtune.engine.execution.workers import Provenance, Site
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.processes.process_pool import Loss, Notify, Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist, FinalNotHeld
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import FINALISTS, Finished, Load
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["BuildMeasurePipeline"]

_STATUS_OF_LOSS = {Loss.TIMED_OUT: Status.TIMED_OUT, Loss.DIED: Status.RUN_FAILED}

_BUILT_AHEAD = 128
"""Binaries a worker that may wait to be timed, until no further build begins. Chosen to be more than a GPU times while
the builders make the next ones, and little on a disk. A campaign of many problems begins with their operands, and times
little: with 64 its builders stood still then (97.8 s instead of 95.6, simulated: experiments/campaign-100)."""


class BuildMeasurePipeline:
    """Builds ahead of the timing; holds finals; a crash or a hang costs one process and one config."""

    def __init__(
        self,
        provenance: Provenance,
        open_site: Callable[[], Site],
        parallel: int,
        *,
        pruners: Mapping[str, Pruner] | None = None,
        racing: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Nothing starts before the first config is submitted: a campaign that is all known needs no process.

        Args:
            provenance: what its numbers are.
            open_site: starts the builders and the workers; the executor closes them.
            parallel: workers there will be.
            pruners: by name, asked before the build and again between build and measurement.
            racing: whether launches stop once a config is behind the task's best; without, every config gets all.
            notify: receives a line for each thing that a person should know.
        """
        self.evidence: Evidence = provenance.evidence
        self.parallel = parallel
        self._provenance = provenance
        self._open_site = open_site
        self._driver_name = f"{platform.node()}/pid{os.getpid()}"
        self._racing = racing
        self._notify = notify
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._leaders: dict[Task, Estimate] = {}
        self._queue = BuildQueue()
        self._cache = ArtifactCache(FINALISTS)
        self._drift = DriftMonitor()
        self._finals: dict[Problem, _PendingFinal] = {}
        self._finished: list[Finished] = []

    @cached_property
    def _site(self) -> Site:
        return self._open_site()

    @property
    def holds_finals(self) -> bool:
        """Whether kernels can be timed against each other."""
        return self._provenance.holds_finals

    def toolchain(self, task: Task) -> Toolchain:
        """Return what `provenance` says."""
        return self._provenance.toolchain(task)

    def protocol(self, task: Task) -> str:
        """Return what `provenance` says."""
        return self._provenance.protocol(task)

    def submit(self, task: Task, config: Config) -> None:
        """Queue the build, unless a pruner sees already that it is not worth it; the measurement follows."""
        reason = pruning_reason(self._pruners, Candidate(task, config), self._history.get(task, ()))
        if reason:
            self._finish(task, config, Reading(Status.INVALID, reason), protocol=UNBUILT)
            return
        self._queue.add(BuildJob(task, config))
        self._feed()

    def hold_final(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Queue a final; binaries that are no longer kept are built again first."""
        problem = candidates[0][0].problem
        final = self._finals[problem] = _PendingFinal(problem, dict.fromkeys(candidates))
        for task, config in candidates:
            kept = self._cache.find(task, config)
            if kept is None:
                self._queue.add_urgent(BuildJob(task, config))
            else:
                final.artifacts[task, config] = kept
        self._hold(final)
        self._feed()

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """What has finished; waits up to the timeout for at least one."""
        finished = self._collect()
        if not finished and self._started and self._under_way:
            self._site.wait(timeout_seconds)
            finished = self._collect()
        return finished

    def close(self) -> None:
        """End every process and delete the binaries."""
        if self._started:
            self._site.close()

    def load(self) -> Load:
        """What is under way."""
        if not self._started:
            return Load(0, 0, 0, {})
        workers = self._site.workers
        return Load(len(self._queue), self._site.builders.pending, workers.pending, workers.busy)

    @property
    def _under_way(self) -> bool:
        return bool(self._queue or self._site.builders.pending or self._site.workers.pending)

    @property
    def _started(self) -> bool:
        return "_site" in self.__dict__

    def _collect(self) -> list[Finished]:
        if self._started:
            self._hear()
        finished, self._finished = self._finished, []
        return finished

    def _feed(self) -> None:
        """Begin builds while there are builders for them, and as far ahead of the timing as is worth it."""
        builders, workers = self._site.builders, self._site.workers
        most = _BUILT_AHEAD * self.parallel
        while self._queue and builders.room > 0 and workers.pending < most:
            builders.submit(self._queue.pop())

    def _hear(self) -> None:
        for measured in self._site.workers.collect():  # first: if it raises, nothing else has been taken and is lost
            job = measured.outcome.job
            if isinstance(job, FinalJob):
                self._after_final(job, measured)
            else:
                self._after_run(job, measured)
        for done in self._site.builders.collect():
            self._after_build(done.outcome)
        self._feed()

    def _after_build(self, outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> None:
        """Hand the artifact to the workers, or say why there is nothing to hand on."""
        job, result = outcome.job, build_result(outcome)
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
        reason = pruning_reason(self._pruners, candidate, self._history.get(job.task, ()))
        if reason:
            discard(artifact)
            reading = Reading(Status.INVALID, reason)
            self._finish(job.task, job.config, reading, artifact.resources, artifact.build_seconds)
            return
        leader = self._leaders.get(job.task) if self._racing else None
        self._site.workers.submit(MeasureJob(job.task, job.config, artifact, leader, self._racing))

    def _after_run(self, job: MeasureJob, done: Done[MeasureJob | FinalJob, Reading | FinalReading]) -> None:
        result, loss = done.outcome.result, done.outcome.loss
        if isinstance(result, Reading):
            reading = result
        else:
            assert loss is not None
            reading = Reading(_STATUS_OF_LOSS[loss], f"run: {done.outcome.reason}")
        if reading.estimate is None or not self.holds_finals:
            discard(job.artifact)
        else:
            self._cache.keep(job.task, job.config, job.artifact, reading.estimate.time_ns)
        if reading.estimate is not None:
            best = self._leaders.get(job.task)
            level = reading.estimate.level
            if best is None or reading.estimate.time_ns < best.at_level(level).time_ns:
                self._leaders[job.task] = reading.estimate
            drifted = self._drift.check(done.place, reading.drift)
            if drifted:
                self._site.workers.retire(done.place, drifted)
        facts = (job.artifact.resources, job.artifact.build_seconds)
        self._finish(job.task, job.config, reading, *facts, worker=done.place)

    def _built_again(self, final: _PendingFinal, job: BuildJob, artifact: Artifact | None) -> None:
        if artifact is None:
            del final.artifacts[job.task, job.config]
            self._notify(f"{job.task.key} {job.config} did not build again for the final")
        else:
            final.artifacts[job.task, job.config] = artifact
        self._hold(final)

    def _hold(self, final: _PendingFinal) -> None:
        """Send the final to a worker once every binary is there."""
        if any(artifact is None for artifact in final.artifacts.values()):
            return
        jobs = [MeasureJob(task, config, a) for (task, config), a in final.artifacts.items() if a is not None]
        if jobs:
            self._site.workers.submit(FinalJob(tuple(jobs)))
        else:
            del self._finals[final.problem]
            self._finished.append(FinalNotHeld(final.problem, "no finalist was built again"))

    def _after_final(self, job: FinalJob, done: Done[MeasureJob | FinalJob, Reading | FinalReading]) -> None:
        result, problem = done.outcome.result, job.finalists[0].task.problem
        final = self._finals[problem]
        if isinstance(result, FinalReading):
            for number, reason in result.failed:
                failed = job.finalists[number]
                final.failed.append(FailedFinalist(failed.task, failed.config, reason))
                del final.artifacts[failed.task, failed.config]
            if not result.ranking and final.artifacts:
                self._hold(final)  # one has taken the GPU's process with it: the others meet without it
                return
        del self._finals[problem]
        for finalist in job.finalists:
            discard(finalist.artifact)
            self._cache.clear(finalist.task)
        if isinstance(result, FinalReading) and result.ranking:
            self._finished.append(self._final(job, result, tuple(final.failed), done.place))
        else:
            self._finished.append(FinalNotHeld(problem, done.outcome.reason or "no finalist passed its check"))

    def _final(self, job: FinalJob, reading: FinalReading, failed: tuple[FailedFinalist, ...], worker: str) -> Final:
        finalists = []
        for s in reading.ranking:
            of = job.finalists[s.number]
            toolchain = self.toolchain(of.task)
            finalists.append(Finalist(of.task, of.config, toolchain, s.estimate, s.samples_ns, s.behind, s.run))
        return Final(tuple(finalists), self.protocol(job.finalists[0].task), worker, _now(), failed)

    def _finish(
        self,
        task: Task,
        config: Config,
        reading: Reading,
        resources: Resources | None = None,
        build_seconds: float | None = None,
        *,
        protocol: str | None = None,
        worker: str | None = None,
    ) -> None:
        measurement = Measurement(
            task=task,
            config=config,
            status=reading.status,
            evidence=self.evidence,
            protocol=protocol or self.protocol(task),
            toolchain=self.toolchain(task),
            worker=worker or self._driver_name,
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
        self._queue.finish_evaluation(task)
        if self._pruners:  # nobody else reads it, and a campaign has hundreds of thousands
            self._history.setdefault(task, []).append(measurement)
        self._finished.append(measurement)


@dataclass(slots=True)
class _PendingFinal:
    """A final whose binaries are being gathered."""

    problem: Problem
    """The GEMM."""
    artifacts: dict[tuple[Task, Config], Artifact | None]
    """Each candidate's binary; None while it is being built."""
    failed: list[FailedFinalist] = field(default_factory=list)
    """Candidates that failed so far."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
