"""Run jobs in the worker process: load, check and time kernels. Imports torch and uses the GPU."""

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

import torch

from gemmtune.engine.io.blame import first_line
from gemmtune.engine.measure.deciding.duty_cycle import DutyCycle, DutyCycleTimer
from gemmtune.engine.measure.deciding.finals import hold_final
from gemmtune.engine.measure.deciding.screening import LaunchLimits, implausible_reason, screen
from gemmtune.engine.measure.gpu_lock import gpu_lock
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, MeasureJob, Reading
from gemmtune.engine.measure.operands.row_bits import RowBits
from gemmtune.engine.measure.problem_setup import ProblemSetup, SetupCache
from gemmtune.engine.measure.protocols import Protocol
from gemmtune.engine.measure.timing.energy import joules_per_launch
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer
from gemmtune.engine.processes.process_pool import Last
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.statistics import outliers
from gemmtune.engine.toolchain.telemetry import Telemetry

_LIMITS = LaunchLimits()
_RECHECK_REST_SECONDS = 10e-3  # rest before an implausible result is checked and measured again
_SHORT_NS = 100e3  # leader's time below which an extra launch costs less than waiting for the first one's result
_HOPELESS = 2.0  # leader's times from which bits are not compared: such a config serves no row, and launches are long
_L2_OVER_MEMORY = 32  # rate of the L2 over the memory's, at most; an L4's, 64 bytes per clock and multiprocessor, is 25


class Bench:
    """Measure configs and hold finals on one GPU, one job at a time."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self._device)
        self._telemetry = Telemetry(f"GPU-{properties.uuid}")
        self.lock = partial(gpu_lock, f"GPU-{properties.uuid}")  # around each job
        self._duty_cycle = DutyCycle(time.perf_counter, time.sleep)
        self._setups = SetupCache(protocol.cold, self._device)
        self._spaces: dict[str, Space] = {}
        self._leaders: dict[Task, Estimate] = {}
        self._upcoming: Callable[[], object | None] = lambda: None
        self._loaded: tuple[MeasureJob, Launchable] | None = None
        self._rows: tuple[Workload, RowBits] | None = None

    def __call__(self, job: MeasureJob | FinalJob) -> Reading | FinalReading | Last[Reading | FinalReading]:
        """Run one job and return its reading; a failure that leaves the GPU unusable ends the process by `Last`.

        A job that finds too little memory runs again with less kept for other workloads, until nothing is.
        """
        workload = (job.finalists[0] if isinstance(job, FinalJob) else job).task.problem
        while True:
            try:
                return self._final(job) if isinstance(job, FinalJob) else self._measure(job)
            except Exception as error:
                if not self._may_find_room(error, workload):
                    if isinstance(job, FinalJob):
                        raise
                    reading = Reading(Status.RUN_FAILED, first_line(error))  # any other error is this config's failure
                    return reading if self._usable() else Last(reading)
            self._rows = None
            self._setups.make_room(workload)  # here no frame of the error holds its tensors

    def look_ahead(self, upcoming: Callable[[], object | None]) -> None:
        """Let the bench load the next job's artifact while the GPU works on the current job."""
        self._upcoming = upcoming

    def _measure(self, job: MeasureJob) -> Reading:
        setup = self._setups.get(job.task.problem)
        kernel = self._load(job)
        reading = self._time(job, kernel, setup)
        kernel.close()
        return reading

    def _time(self, job: MeasureJob, kernel: Launchable, setup: ProblemSetup) -> Reading:
        finish_check = setup.start_check(kernel, -1)  # the last set, so that the first timed sets are still cold
        timer = self._setups.timer(kernel, job.task.problem)
        leader = self._leader(job, setup)
        if leader is not None:
            # Enqueued behind the check: one wait for both. Most configs need two launches.
            timer.start_singles(2 if leader.time_ns < _SHORT_NS else 1)
        before = self._telemetry.read()  # while the GPU works, and so does the next line
        self._load_ahead()
        check = finish_check()
        if check.reason:
            return Reading(Status.WRONG_RESULT, check.reason, error_norm=check.error_norm, before=before)
        paced = self._paced(timer, setup)
        drift = replace(setup.drift, may_be_throttled=self._telemetry.may_be_throttled)
        found = screen(paced, drift, leader, _LIMITS)
        setup.add_reference_times(found.reference_ns)
        discarded: tuple[float, ...] = ()
        if implausible_reason(found.estimate, leader, self._floor_ns(job.task)):
            time.sleep(_RECHECK_REST_SECONDS)
            check = setup.check(kernel, 0)
            if check.reason:
                return Reading(Status.WRONG_RESULT, check.reason, error_norm=check.error_norm, before=before)
            discarded, found = found.samples_ns, screen(paced, drift, None, _LIMITS)
        estimate = replace(found.estimate, level=setup.level, stopped=found.stopped)
        if leader is None or estimate.time_ns < leader.time_ns:
            self._leaders[job.task] = estimate
        energy = None
        if self._protocol.energy:
            replay, launches = timer.loop(found.estimate.time_ns)
            seconds = launches * found.estimate.time_ns / 1e9
            energy = joules_per_launch(replay, launches, seconds, self._telemetry.energy_mj)
        timer.close()
        hopeless = leader is not None and estimate.time_ns > _HOPELESS * leader.time_ns
        bits, reason = ("", "") if hopeless else self._bits(job, kernel)
        if reason:
            return Reading(Status.WRONG_RESULT, reason, error_norm=check.error_norm, before=before)
        discarded += tuple(sample for block in paced.slow_blocks for sample in block.samples_ns)
        return Reading(
            status=Status.OK,
            samples_ns=found.samples_ns + discarded,
            estimate=replace(estimate, bits=bits),
            outliers=(*outliers(found.samples_ns), *range(len(found.samples_ns), len(found.samples_ns + discarded))),
            drift=found.drift,
            energy_joules=energy,
            error_norm=check.error_norm,
            before=before,
            after=self._telemetry.read(),
        )

    def _bits(self, job: MeasureJob, kernel: Launchable) -> tuple[str, str]:
        """Return the digest of rows' bits, and why there is none; both empty where nothing compares them."""
        if not self._protocol.bits or not self._space(job.task).summation(job.task, job.config):
            return "", ""
        workload = job.task.problem
        if self._rows is None or self._rows[0] != workload:  # most jobs are of the problem of the job before
            self._rows = None
            self._rows = workload, RowBits(workload, self._device)
        return self._rows[1].digest(kernel)

    def _load(self, job: MeasureJob) -> Launchable:
        loaded, self._loaded = self._loaded, None
        if loaded is not None and loaded[0] is job:
            return loaded[1]
        return self._space(job.task).load(job.artifact, job.task)

    def _load_ahead(self) -> None:
        upcoming = self._upcoming()
        if isinstance(upcoming, MeasureJob) and self._loaded is None:
            with suppress(Exception):  # the job itself will raise it again, and report it
                self._loaded = upcoming, self._space(upcoming.task).load(upcoming.artifact, upcoming.task)

    def _leader(self, job: MeasureJob, setup: ProblemSetup) -> Estimate | None:
        """Return the leader's estimate at this GPU's level: the job's, or a faster one measured here meanwhile."""
        if not job.early_stopping:
            return None
        leaders = job.leader, self._leaders.get(job.task)
        known = [leader.at_level(setup.level) for leader in leaders if leader is not None]
        return min(known, key=lambda leader: leader.time_ns, default=None)

    def _final(self, job: FinalJob) -> FinalReading | Last[Reading | FinalReading]:
        workload = job.finalists[0].task.problem
        kernels: dict[int, Launchable] = {}
        failed: list[tuple[int, str]] = []
        setup = self._setups.get(workload)
        for number, finalist in enumerate(job.finalists):
            try:
                kernel = self._space(finalist.task).load(finalist.artifact, finalist.task)
                reason = setup.check(kernel, 0).reason
            except Exception as error:  # any other error is this finalist's failure
                if self._may_find_room(error, workload):
                    raise
                reason = first_line(error)
                if not self._usable():
                    return Last(FinalReading((), ((number, reason),)))
            if reason:
                failed.append((number, reason))
            else:
                kernels[number] = kernel
        ranking = self._rank(kernels, workload)
        floor_ns = self._floor_ns(job.finalists[0].task)
        while impossible := [found for found in ranking if found.estimate.time_ns < floor_ns]:
            for found in impossible:
                kernels.pop(found.number).close()
                failed.append((found.number, implausible_reason(found.estimate, None, floor_ns)))
            ranking = self._rank(kernels, workload)
        for kernel in kernels.values():
            kernel.close()
        return FinalReading(ranking, tuple(failed))

    def _rank(self, kernels: Mapping[int, Launchable], workload: Workload) -> tuple[FinalistReading, ...]:
        if not kernels:
            return ()
        setup, run, numbers = self._setups.get(workload), self._setups.final_run(workload), list(kernels)
        timers = [self._setups.timer(kernel, workload, run) for kernel in kernels.values()]
        paced = [self._paced(timer, setup) for timer in timers]
        results = hold_final(paced, _LIMITS, self._telemetry.may_be_throttled)
        for timer in timers:
            timer.close()
        return tuple(
            replace(r, number=numbers[r.number], estimate=replace(r.estimate, level=setup.level)) for r in results
        )

    def _paced(self, timer: KernelTimer, setup: ProblemSetup) -> DutyCycleTimer:
        return DutyCycleTimer(timer, setup.drift, self._duty_cycle, time.sleep)

    def _floor_ns(self, task: Task) -> float:
        """Return the least time of the task's bytes on a cold L2, in ns, which may keep outputs; 0 on a warm one."""
        if not self._protocol.cold:
            return 0.0
        written = sum(output.nbytes for output in self._setups.get(task.problem).sets.kernel[0].outputs)
        kept = min(written, task.device.l2_bytes, task.problem.min_bytes)
        return (task.problem.min_bytes - kept + kept / _L2_OVER_MEMORY) / task.device.memory_bandwidth_gb_s

    def _space(self, task: Task) -> Space:
        if task.space not in self._spaces:  # a look-up in the registry takes milliseconds
            self._spaces[task.space] = registry.space(task.space)
        return self._spaces[task.space]

    def _may_find_room(self, error: Exception, workload: Workload) -> bool:
        """Return whether memory ran short, in torch, Triton or the driver, while some is kept for other workloads."""
        return "out of memory" in str(error).lower().replace("_", " ") and self._setups.bytes_besides(workload) > 0

    def _usable(self) -> bool:
        """Return whether the GPU still answers; after a sticky error every later call in this process fails."""
        with suppress(RuntimeError):
            torch.cuda.synchronize()
            return True
        return False
