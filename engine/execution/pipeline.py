"""The pipeline of every executor that builds and measures: build ahead, prune, measure, keep binaries, hold finals."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime

from gemmtune.engine.execution.artifact_cache import ArtifactCache, copied, discard
from gemmtune.engine.execution.board_checks import BoardChecks
from gemmtune.engine.execution.build_queue import BuildQueue
from gemmtune.engine.execution.drift_monitor import DriftMonitor
from gemmtune.engine.execution.pruning import UNBUILT, FailedBuild, build_result, pruning_reason
from gemmtune.engine.execution.workers import Done, Machines, Provenance, ranking_of, reading_of
from gemmtune.engine.measure.builder import BuildFailure, BuildJob
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.processes.process_pool import Notify, Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist, FinalNotHeld
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.executor import FINALISTS, Finished, Load
from gemmtune.engine.seams.pruner import Candidate, Pruner

_DOUBTED = (Status.RUN_FAILED, Status.WRONG_RESULT, Status.TIMED_OUT)
"""Failures that a bad board makes, too."""

_BUILT_AHEAD = 128
"""Built configs per GPU worker that may wait before no further build begins. Chosen: more than a GPU times while the
builders make the next ones, and little on a disk. With 64, builders stood still (see experiments/campaign-100)."""


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
        evenly: bool = True,
        notify: Notify = log_notice,
    ) -> None:
        """Prepare the pipeline for that many GPU workers; no process starts before the first config is submitted.

        Without `early_stopping`, every config gets all its launches. `evenly`: see `BuildQueue`.
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
        self._queue = BuildQueue(evenly=evenly)
        self._cache = ArtifactCache(FINALISTS)
        self._drift = DriftMonitor()
        self._checks = BoardChecks(_now)
        self._doubted: dict[int, Done] = {}  # failures that another board is to have too, by their jobs' identity
        self._rebuilds: dict[int, tuple[BuildJob, Measurement]] = {}  # builds of stored canaries, by identity
        self._unproven: list[tuple[MeasureJob, Done]] = []  # first results of boards, until a check compares them
        self._untrusted: GemmtuneError | None = None  # why no board is left to measure on
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
            if not self._finished:
                self._machines.wait(timeout_seconds if self._is_working(self._machines) else 0.0)
                self._handle_results(self._machines)
        finished, self._finished = self._finished, []
        if self._untrusted is not None and not finished:
            raise self._untrusted
        return finished

    def compare_with(self, stored: Sequence[Measurement]) -> None:
        """Build the configs of earlier measurements with the first jobs, so that every board times them as canaries."""
        for measurement in stored if self._machines is None and not self._rebuilds else ():
            job = BuildJob(measurement.task, measurement.config)
            self._rebuilds[id(job)] = job, measurement

    def check_boards(self) -> bool:
        """Start the checks of boards whose last results nothing vouches for; return whether any is under way."""
        if self._machines is None or self._untrusted is not None:
            return False
        self._send_canaries(self._machines, ends=True)
        return self._checks.is_running(self._machines.workers.busy)

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
            for job, _ in self._rebuilds.values():
                self._queue.add_urgent(job)
        return self._machines

    def _is_working(self, machines: Machines) -> bool:
        return bool(self._queue or machines.builders.pending or machines.workers.pending)

    def _start_builds(self, machines: Machines) -> None:
        """Start builds while builders have room and not too many built configs wait to be timed."""
        most = _BUILT_AHEAD * self.parallel
        while self._queue and machines.builders.room > 0 and machines.workers.pending < most:
            machines.builders.submit(self._queue.pop())
        machines.builders.queued = len(self._queue)

    def _handle_results(self, machines: Machines) -> None:
        for result in machines.workers.collect():  # first: if this raises, no other result was taken and lost
            job = result.outcome.job
            if isinstance(job, MeasureJob) and self._checks.is_canary(job):
                live, reading = machines.workers.busy, reading_of(result)
                self._conclude(machines, self._checks.add_canary_result(job, result.worker, reading, live))
            elif self._checks.is_quarantined(result.worker):
                machines.workers.submit(job)
            elif isinstance(job, FinalJob):
                self._after_final(machines, job, result)
            else:
                self._after_measurement(machines, job, result)
        self._send_canaries(machines)
        for done in machines.builders.collect():
            self._after_build(machines, done.outcome)
        self._start_builds(machines)
        self._release_unproven(machines)

    def _send_canaries(self, machines: Machines, *, ends: bool = False) -> None:
        for worker, job in self._checks.start(machines.workers.busy, ends=ends):
            machines.workers.submit(job, worker)

    def _conclude(self, machines: Machines, verdicts: Iterable[BoardVerdict]) -> None:
        """Report what is known of boards now; a quarantined one measures no more, and nothing of it is built upon."""
        for verdict in verdicts:
            self._finished.append(verdict)
            name = verdict.worker if verdict.board == verdict.worker else f"{verdict.worker} ({verdict.board})"
            if verdict.trust is Trust.OFF:
                self._notify(f"{name}: {verdict.reason}")
            if verdict.trust is not Trust.QUARANTINED:
                continue
            self._leaders.clear()
            for task, held in self._history.items():
                self._history[task] = [each for each in held if each.worker != verdict.worker]
            if len(machines.workers.busy) > 1:
                machines.workers.quarantine(verdict.worker, verdict.reason)
            else:
                why = f"{name} is quarantined, and no other GPU is left: {verdict.reason}"
                self._untrusted = GemmtuneError(f"{why}; what was measured before is kept")

    def _other_board(self, machines: Machines, worker: str) -> str:
        """Return a worker on another board, an idle one if there is one; empty without any."""
        busy, own = machines.workers.busy, self._checks.board(worker)
        others = [name for name in busy if self._checks.board(name) != own and not self._checks.is_quarantined(name)]
        return min(others, key=busy.__getitem__, default="")

    def _after_build(self, machines: Machines, outcome: Outcome[BuildJob, Artifact | BuildFailure]) -> None:
        """Measure the artifact, or finish a config that did not build."""
        job, result = outcome.job, build_result(outcome)
        if (stored := self._rebuilds.pop(id(job), None)) is not None:
            if isinstance(result, Artifact):
                self._checks.add_canary(MeasureJob(job.task, job.config, copied(result)), stored[1])
            return
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

    def _after_measurement(self, machines: Machines, job: MeasureJob, done: Done) -> None:
        """Take a result: of a failed config on another board first, and of a new board once others vouch for it."""
        reading, doubted = reading_of(done), self._doubted.pop(id(job), None)
        self._count(machines, done, reading.estimate)
        if doubted is None and reading.status in _DOUBTED and self._doubt(machines, done):
            return
        if doubted is not None and reading.status is Status.OK:
            self._checks.suspect(doubted.worker)
        if self._checks.wants(job, reading):
            self._checks.add_canary(replace(job, artifact=copied(job.artifact)))
        if self._checks.is_unproven(done.worker) and self._other_board(machines, done.worker):
            self._unproven.append((job, done))
        else:
            self._accept(machines, job, done)

    def _count(self, machines: Machines, done: Done, estimate: Estimate | None) -> None:
        level = estimate.level if estimate else None
        board = level.board if level else machines.workers.boards.get(done.worker, "")
        self._conclude(machines, self._checks.add_result(done.worker, board))

    def _doubt(self, machines: Machines, done: Done) -> bool:
        """Give a failed job to another board, and return whether there is one."""
        if other := self._other_board(machines, done.worker) if self.evidence is Evidence.MEASURED else "":
            self._doubted[id(done.outcome.job)] = done
            machines.workers.submit(done.outcome.job, other)
        return bool(other)

    def _release_unproven(self, machines: Machines) -> None:
        """Accept the first results of boards that were compared, and of all where nothing else is on its way."""
        held, self._unproven = self._unproven, []
        all_there = not self._is_working(machines)
        workers = {done.worker for _, done in held}
        unproven = {w for w in workers if self._checks.is_unproven(w) and self._other_board(machines, w)}
        for job, done in held:
            if self._checks.is_quarantined(done.worker):
                machines.workers.submit(job)
            elif all_there or done.worker not in unproven:
                self._accept(machines, job, done)
            else:
                self._unproven.append((job, done))

    def _accept(self, machines: Machines, job: MeasureJob, done: Done) -> None:
        """Finish a config that was measured."""
        reading = reading_of(done)
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

    def _after_final(self, machines: Machines, job: FinalJob, done: Done) -> None:
        """End a final; where finalists failed, once another board has held it too: the one that ranks more counts."""
        doubted, ranking = self._doubted.pop(id(job), None), ranking_of(done)
        self._count(machines, done, ranking[0].estimate if ranking else None)
        if doubted is None and len(ranking) < len(job.finalists) and self._doubt(machines, done):
            return
        if doubted is not None and len(ranking) != len(ranking_of(doubted)):
            worse, done = sorted((doubted, done), key=lambda each: len(ranking_of(each)))
            self._checks.suspect(worse.worker)
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
