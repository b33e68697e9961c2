"""The pipeline of every executor that builds and measures: build ahead, prune, measure, keep binaries, hold finals."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

from gemmtune.engine.execution.artifact_cache import ArtifactCache, discard
from gemmtune.engine.execution.build_queue import BuildQueue
from gemmtune.engine.execution.dispatcher import JobResult
from gemmtune.engine.execution.drift_monitor import DriftMonitor
from gemmtune.engine.execution.pruning import UNBUILT, FailedBuild, build_result, pruning_reason
from gemmtune.engine.execution.workers import Machines, Provenance
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.processes.process_pool import Loss, Notify, Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist, FinalNotHeld
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.executor import FINALISTS, Finished, Load
from gemmtune.engine.seams.pruner import Candidate, Pruner

_STATUS_OF_LOSS = {Loss.TIMED_OUT: Status.TIMED_OUT, Loss.DIED: Status.RUN_FAILED}

_BUILT_AHEAD = 128
"""Built configs per GPU worker that may wait before no further build begins. Chosen: more than a GPU times while the
builders make the next ones, and little on a disk. A campaign of many problems begins with their operands and times
little, so that builders stood still with 64 (see experiments/campaign-100)."""


class BuildMeasurePipeline:
    """Builds ahead of the timing and holds finals; a crash or a hang costs one process and one config."""

    def __init__(
        self,
        provenance: Provenance,
        open_machines: Callable[[], Machines],
        parallel: int,
        *,
        pruners: Mapping[str, Pruner] | None = None,
        early_stopping: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Prepare the pipeline for that many GPU workers; no process starts before the first config is submitted.

        Without `early_stopping`, every config gets all its launches.
        """
        self.evidence: Evidence = provenance.evidence
        self.parallel = parallel
        self._provenance = provenance
        self._open_machines = open_machines
        self._machines: Machines | None = None
        self._driver_name = f"{platform.node()}/pid{os.getpid()}"
        self._early_stopping = early_stopping
        self._notify = notify
        self._pruners = dict(pruners or {})
        self._history: dict[Task, list[Measurement]] = {}
        self._leaders: dict[Task, Estimate] = {}
        self._queue = BuildQueue()
        self._cache = ArtifactCache(FINALISTS)
        self._drift = DriftMonitor()
        self._finals: dict[Workload, _PendingFinal] = {}
        self._finished: list[Finished] = []

    @property
    def holds_finals(self) -> bool:
        """Whether kernels can be timed against each other."""
        return self._provenance.holds_finals

    def toolchain(self, task: Task) -> Toolchain:
        """Return the toolchain that measurements of the task name."""
        return self._provenance.toolchain(task)

    def protocol(self, task: Task) -> str:
        """Return the timing protocol that measurements of the task name."""
        return self._provenance.protocol(task)

    def submit(self, task: Task, config: Config) -> None:
        """Queue the build of a config, unless a pruner drops the config; its measurement follows."""
        reason = pruning_reason(self._pruners, Candidate(task, config), self._history.get(task, ()))
        if reason:
            self._finish(task, config, Reading(Status.INVALID, reason), protocol=UNBUILT)
            return
        self._queue.add(BuildJob(task, config))
        self._start_builds(self._started())

    def hold_final(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        """Queue a final; configs whose binaries were not kept are built again first."""
        problem, machines = candidates[0][0].problem, self._started()
        final = self._finals[problem] = _PendingFinal(problem, dict.fromkeys(candidates))
        for task, config in candidates:
            kept = self._cache.find(task, config)
            if kept is None:
                self._queue.add_urgent(BuildJob(task, config))
            else:
                final.artifacts[task, config] = kept
        self._measure_final(machines, final)
        self._start_builds(machines)

    def collect(self, timeout_seconds: float) -> list[Finished]:
        """Return what has finished; wait up to the timeout for at least one result."""
        if self._machines is not None:
            self._handle_results(self._machines)
            if not self._finished and self._is_working(self._machines):
                self._machines.wait(timeout_seconds)
                self._handle_results(self._machines)
        finished, self._finished = self._finished, []
        return finished

    def close(self) -> None:
        """End every process and delete the binaries."""
        if self._machines is not None:
            self._machines.close()

    def load(self) -> Load:
        """Return the numbers of configs at each step."""
        if self._machines is None:
            return Load(0, 0, 0, {})
        workers = self._machines.workers
        return Load(len(self._queue), self._machines.builders.pending, workers.pending, workers.busy)

    def _started(self) -> Machines:
        """Return the machines, started if they are not."""
        if self._machines is None:
            self._machines = self._open_machines()
        return self._machines

    def _is_working(self, machines: Machines) -> bool:
        return bool(self._queue or machines.builders.pending or machines.workers.pending)

    def _start_builds(self, machines: Machines) -> None:
        """Start builds while builders have room and not too many built configs wait to be timed."""
        most = _BUILT_AHEAD * self.parallel
        while self._queue and machines.builders.room > 0 and machines.workers.pending < most:
            machines.builders.submit(self._queue.pop())

    def _handle_results(self, machines: Machines) -> None:
        for result in machines.workers.collect():  # first: if this raises, no other result was taken and lost
            job = result.outcome.job
            if isinstance(job, FinalJob):
                self._after_final(machines, job, result)
            else:
                self._after_measurement(machines, job, result)
        for done in machines.builders.collect():
            self._after_build(machines, done.outcome)
        self._start_builds(machines)

    def _after_build(self, machines: Machines, outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> None:
        """Measure the artifact, or finish a config that did not build."""
        job, result = outcome.job, build_result(outcome)
        final = self._finals.get(job.task.problem)
        if final is not None and (job.task, job.config) in final.artifacts:
            self._after_rebuild(machines, final, job, result if isinstance(result, Artifact) else None)
        elif isinstance(result, FailedBuild):
            reading = Reading(result.status, result.reason)
            self._finish(job.task, job.config, reading, build_seconds=result.build_seconds)
        else:
            self._measure_or_prune(machines, job, result)

    def _measure_or_prune(self, machines: Machines, job: BuildJob, artifact: Artifact) -> None:
        candidate = Candidate(job.task, job.config, artifact)
        reason = pruning_reason(self._pruners, candidate, self._history.get(job.task, ()))
        if reason:
            discard(artifact)
            reading = Reading(Status.INVALID, reason)
            self._finish(job.task, job.config, reading, artifact.resources, artifact.build_seconds)
            return
        leader = self._leaders.get(job.task) if self._early_stopping else None
        machines.workers.submit(MeasureJob(job.task, job.config, artifact, leader, self._early_stopping))

    def _after_measurement(
        self, machines: Machines, job: MeasureJob, done: JobResult[MeasureJob | FinalJob, Reading | FinalReading]
    ) -> None:
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
            drifted = self._drift.check(done.worker, reading.drift)
            if drifted:
                machines.workers.quarantine(done.worker, drifted)
        facts = (job.artifact.resources, job.artifact.build_seconds)
        self._finish(job.task, job.config, reading, *facts, worker=done.worker)

    def _after_rebuild(
        self, machines: Machines, final: _PendingFinal, job: BuildJob, artifact: Artifact | None
    ) -> None:
        if artifact is None:
            del final.artifacts[job.task, job.config]
            self._notify(f"{job.task.key} {job.config} did not build again for the final")
        else:
            final.artifacts[job.task, job.config] = artifact
        self._measure_final(machines, final)

    def _measure_final(self, machines: Machines, final: _PendingFinal) -> None:
        """Send the final to a worker once every binary is built."""
        if any(artifact is None for artifact in final.artifacts.values()):
            return
        jobs = [MeasureJob(task, config, a) for (task, config), a in final.artifacts.items() if a is not None]
        if jobs:
            machines.workers.submit(FinalJob(tuple(jobs)))
        else:
            del self._finals[final.problem]
            self._finished.append(FinalNotHeld(final.problem, "no finalist was built again"))

    def _after_final(
        self, machines: Machines, job: FinalJob, done: JobResult[MeasureJob | FinalJob, Reading | FinalReading]
    ) -> None:
        result, problem = done.outcome.result, job.finalists[0].task.problem
        final = self._finals[problem]
        if isinstance(result, FinalReading):
            for number, reason in result.failed:
                failed = job.finalists[number]
                final.failed.append(FailedFinalist(failed.task, failed.config, reason))
                del final.artifacts[failed.task, failed.config]
            if not result.ranking and final.artifacts:
                self._measure_final(machines, final)  # one broke the GPU's process: the others meet without it
                return
        del self._finals[problem]
        for finalist in job.finalists:
            discard(finalist.artifact)
            self._cache.clear(finalist.task)
        if isinstance(result, FinalReading) and result.ranking:
            self._finished.append(self._final(job, result, tuple(final.failed), done.worker))
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
            evidence=self.evidence,
            protocol=protocol or self.protocol(task),
            toolchain=self.toolchain(task),
            worker=worker or self._driver_name,
            created_at=_now(),
            resources=resources,
            build_seconds=build_seconds,
            **{each.name: getattr(reading, each.name) for each in fields(Reading)},
        )
        self._queue.finish_evaluation(task)
        if self._pruners:  # only pruners read it, and a campaign has hundreds of thousands
            self._history.setdefault(task, []).append(measurement)
        self._finished.append(measurement)


@dataclass(slots=True)
class _PendingFinal:
    """A final whose binaries are being gathered."""

    problem: Workload
    """Problem that the final decides."""
    artifacts: dict[tuple[Task, Config], Artifact | None]
    """Each candidate's artifact; None while it is being built."""
    failed: list[FailedFinalist] = field(default_factory=list)
    """Candidates that have failed."""


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
