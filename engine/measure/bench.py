"""What the worker process does with a job: load, check, time. Imports torch and uses the GPU."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace

import torch

from gemmtune.engine.measure.deciding import screening as race
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.deciding.duty_cycle import CalmTimer, Pacer
from gemmtune.engine.measure.deciding.finals import settle
from gemmtune.engine.measure.gpu_scale import as_on
from gemmtune.engine.measure.jobs import FinalJob, FinalReading, MeasureJob, Reading, Settled
from gemmtune.engine.measure.problem_setup import Stand
from gemmtune.engine.measure.problem_setups import Stands
from gemmtune.engine.measure.protocols import Protocol
from gemmtune.engine.measure.timing.energy import joules_per_launch
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer
from gemmtune.engine.platform.telemetry import Telemetry
from gemmtune.engine.processes.process_pool import Last
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.statistics import outliers

__all__ = ["Bench"]

_TERMS = race.Terms()
_ALONE_SECONDS = 10e-3  # of rest before a second look
_SHORT_NS = 100e3
"""Time of a leader below which a launch costs less than to wait and see whether it is needed."""


class Bench:
    """One GPU's bench. Called with jobs, one at a time."""

    def __init__(self, protocol: Protocol) -> None:
        """Take the current GPU."""
        self._protocol = protocol
        device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(device)
        self._telemetry = Telemetry(f"GPU-{properties.uuid}")
        self._pacer = Pacer(time.perf_counter, time.sleep)
        self._stands = Stands(protocol.cold, device)
        self._spaces: dict[str, Space] = {}
        self._leaders: dict[Task, race.Standing] = {}
        self._upcoming: Callable[[], object | None] = lambda: None
        self._loaded: tuple[MeasureJob, Launchable] | None = None

    def __call__(self, job: MeasureJob | FinalJob) -> Reading | FinalReading | Last[Reading | FinalReading]:
        """Do one job. A failure is a reading too; after one that leaves the GPU unusable the process ends."""
        return self._final(job) if isinstance(job, FinalJob) else self._measure(job)

    def look_ahead(self, upcoming: Callable[[], object | None]) -> None:
        """Load the next job's artifact while the GPU works on this one's."""
        self._upcoming = upcoming

    def _measure(self, job: MeasureJob) -> Reading | Last[Reading | FinalReading]:
        try:
            stand = self._stands.of(job.task.problem)
            kernel = self._load(job)
            reading = self._time(job, kernel, stand)
            kernel.close()
        except Exception as error:  # whatever it is, it is this config's failure
            reading = Reading(Status.RUN_FAILED, _reason(error))
            return reading if self._usable() else Last(reading)
        return reading

    def _time(self, job: MeasureJob, kernel: Launchable, stand: Stand) -> Reading:
        judge = stand.start_check(kernel, -1)  # the last set: the first timed launches find theirs cold
        timer = self._stands.timer(kernel, job.task.problem)
        leader = self._leader(job, stand)
        if leader is not None:
            timer.start_singles(_singles_ahead(leader))  # behind the check's launches: one wait for all
        before = self._telemetry.read()  # while the GPU works, as the next line
        self._load_ahead()
        comparison = judge()
        if comparison.reason:
            return Reading(Status.WRONG_RESULT, comparison.reason, error_norm=comparison.error_norm, before=before)
        calm, drift = self._calm(timer, stand), self._drift(stand)
        found = race.screen(calm, drift, leader, _TERMS)
        stand.saw(found.reference_ns)
        aside: tuple[float, ...] = ()
        if race.suspicious(found.estimate, leader, self._floor_ns(job.task)):
            time.sleep(_ALONE_SECONDS)
            comparison = stand.check(kernel, 0)
            if comparison.reason:
                return Reading(Status.WRONG_RESULT, comparison.reason, error_norm=comparison.error_norm, before=before)
            aside, found = found.samples_ns, race.screen(calm, drift, None, _TERMS)
        estimate = replace(found.estimate, level=stand.level, stopped=found.stopped)
        if leader is None or estimate.time_ns < leader.estimate.time_ns:
            self._leaders[job.task] = race.Standing(estimate)
        energy = self._energy(timer, found.estimate.time_ns) if self._protocol.energy else None
        timer.close()
        aside += tuple(sample for block in calm.set_aside for sample in block.samples_ns)
        return Reading(
            status=Status.OK,
            reason="",
            samples_ns=found.samples_ns + aside,
            estimate=estimate,
            outliers=(*outliers(found.samples_ns), *range(len(found.samples_ns), len(found.samples_ns + aside))),
            drift=found.drift,
            energy_joules=energy,
            error_norm=comparison.error_norm,
            before=before,
            after=self._telemetry.read(),
        )

    def _load(self, job: MeasureJob) -> Launchable:
        loaded, self._loaded = self._loaded, None
        if loaded is not None and loaded[0] is job:
            return loaded[1]
        return self._space(job.task).load(job.artifact, job.task)

    def _load_ahead(self) -> None:
        upcoming = self._upcoming()
        if isinstance(upcoming, MeasureJob) and self._loaded is None:
            with suppress(Exception):  # whatever it is, it will come again when it is that job's turn
                self._loaded = upcoming, self._space(upcoming.task).load(upcoming.artifact, upcoming.task)

    def _leader(self, job: MeasureJob, stand: Stand) -> race.Standing | None:
        """The best known, as on this GPU: the job's, or one that was measured here since the job was queued."""
        if not job.racing:
            return None
        standings = job.leader, self._leaders.get(job.task)
        known = [race.Standing(as_on(stand.level, s.estimate)) for s in standings if s is not None]
        return min(known, key=lambda s: s.estimate.time_ns, default=None)

    def _final(self, job: FinalJob) -> FinalReading | Last[Reading | FinalReading]:
        problem = job.finalists[0].task.problem
        kernels: dict[int, Launchable] = {}
        failed: list[tuple[int, str]] = []
        stand = self._stands.of(problem)
        for number, finalist in enumerate(job.finalists):
            try:
                kernel = self._space(finalist.task).load(finalist.artifact, finalist.task)
                reason = stand.check(kernel, 0).reason
            except Exception as error:  # as above
                reason = _reason(error)
                if not self._usable():
                    return Last(FinalReading((), ((number, reason),)))
            if reason:
                failed.append((number, reason))
            else:
                kernels[number] = kernel
        settled = self._settle(kernels, problem)
        floor_ns = self._floor_ns(job.finalists[0].task)
        while impossible := [s for s in settled if s.estimate.time_ns < floor_ns]:
            for standing in impossible:
                kernels.pop(standing.number).close()
                failed.append((standing.number, race.suspicious(standing.estimate, None, floor_ns)))
            settled = self._settle(kernels, problem)
        for kernel in kernels.values():
            kernel.close()
        return FinalReading(settled, tuple(failed))

    def _settle(self, kernels: Mapping[int, Launchable], problem: Problem) -> tuple[Settled, ...]:
        if not kernels:
            return ()
        stand, run, numbers = self._stands.of(problem), self._stands.run(problem), list(kernels)
        timers = [self._stands.timer(kernel, problem, run) for kernel in kernels.values()]
        calm = [self._calm(timer, stand) for timer in timers]
        standings = settle(calm, _TERMS, self._telemetry.may_be_held_back)
        for timer in timers:
            timer.close()
        return tuple(
            Settled(numbers[s.index], replace(s.estimate, level=stand.level), s.samples_ns, s.behind, run.launches)
            for s in standings
        )

    def _calm(self, timer: KernelTimer, stand: Stand) -> CalmTimer:
        return CalmTimer(timer, stand.drift, self._pacer, time.sleep)

    def _drift(self, stand: Stand) -> Drift:
        return replace(stand.drift, may_be_clocks=self._telemetry.may_be_held_back)

    def _energy(self, timer: KernelTimer, time_ns: float) -> float | None:
        replay, launches = timer.loop()
        return joules_per_launch(replay, launches, launches * time_ns / 1e9, self._telemetry.energy_mj)

    def _floor_ns(self, task: Task) -> float:
        """No launch on a cold L2 is faster than its bytes."""
        if not self._protocol.cold:
            return 0.0
        return task.problem.min_bytes / task.device.memory_bandwidth_gb_s

    def _space(self, task: Task) -> Space:
        if task.space not in self._spaces:  # finding a plug-in by name takes 9 ms
            self._spaces[task.space] = registry.space(task.space)
        return self._spaces[task.space]

    def _usable(self) -> bool:
        """Whether the GPU still answers: after a sticky error every later call in this process fails."""
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return False
        return True


def _singles_ahead(leader: race.Standing) -> int:
    """Single launches to enqueue before the first is looked at: three of four configs need two."""
    return 2 if leader.estimate.time_ns < _SHORT_NS else 1


def _reason(error: Exception) -> str:
    first_line = next(iter(str(error).splitlines()), "")
    return f"{type(error).__name__}: {first_line}"[:500]
