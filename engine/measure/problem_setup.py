"""Prepare workloads for measuring: operands, reference results and reference levels. Imports torch."""

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from math import log
from statistics import median

import torch

from gemmtune.engine.measure.deciding.clock_drift import Drift, WarmUp
from gemmtune.engine.measure.deciding.duty_cycle import DUTY
from gemmtune.engine.measure.operands.operand_memory import OperandMemory
from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, OperandSets, reference_kernel
from gemmtune.engine.measure.operands.reference import OutputCheck, ReferenceResult, poison
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer, Run, TimingSetup
from gemmtune.engine.measure.timing.timing_context import TimingContext
from gemmtune.engine.records.measurement import ReferenceLevel
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.space import Completable, Launchable
from gemmtune.engine.seams.workload import Restorable
from gemmtune.engine.statistics import estimate

# Evidence for these constants: see experiments/measurement.
_MOST_LEVELS = 16  # reference levels whose median becomes the nominal level
_LEAST_LEVELS = 6  # reference levels from which their scatter is known; fewer may agree by chance
_FIRST_SCATTER = 0.03  # standard deviation of a reference level measured beside itself, as a share of it
_NOMINAL_BLOCKS = 8  # blocks behind a level measured beside itself
_MOST_REST_SECONDS = 5e-3  # rest between two of these blocks
_FIXED_COST_REST_SECONDS = 2e-3  # rest before a block of the empty kernel; a longer one raises the fixed cost

# Shares of the GPU's memory.
_OUTPUT_SHARES = (1 / 16, 1 / 64)  # to try for outputs, in this order
_OPERAND_SHARES = (1 / 4, 1 / 8, 1 / 16, 1 / 32)  # to try per kind of values; sparsely filled, with few collisions
_KEPT_SHARE = 0.2  # that problems may hold outside the shared regions before the oldest is dropped
_PROBLEM_SHARE = 0.1  # that the operand sets of one problem may span
_RESERVED_SHARE = 0.25  # that no region takes: for tensors outside of regions, references, and the driver's graphs


class ProblemSetup:
    """Operands, reference results and reference level of one workload."""

    def __init__(self, workload: Workload, sets: OperandSets, level: ReferenceLevel) -> None:
        """Start without reference times; `level` was measured with the reference kernel beside itself."""
        self.sets = sets
        self.level = level
        self._levels_ns: list[float] = []
        self._workload = workload
        self._references: dict[int, ReferenceResult] = {}

    @property
    def drift(self) -> Drift:
        """Drift against the median reference level beside the first candidates; until then, beside itself."""
        if len(self._levels_ns) < _LEAST_LEVELS:
            return Drift(median(self._levels_ns or [self.level.time_ns]), reference_scatter=_FIRST_SCATTER)
        nominal_ns = median(self._levels_ns)
        deviations = (abs(log(ns / nominal_ns)) for ns in self._levels_ns)
        return Drift(nominal_ns, reference_scatter=1.4826 * median(deviations))

    def add_reference_times(self, reference_ns: Sequence[float]) -> None:
        """Take the reference's times beside one candidate, in launch order.

        Only the last block counts. Single launches are ignored: they follow a pause of the GPU and are slower.
        """
        if len(reference_ns) >= BLOCK_SAMPLES and len(self._levels_ns) < _MOST_LEVELS:
            self._levels_ns.append(estimate(reference_ns[-BLOCK_SAMPLES:]).time_ns)

    @property
    def own_bytes(self) -> int:
        """Device memory that no other workload shares, in bytes."""
        return self.sets.own_bytes + sum(reference.nbytes for reference in self._references.values())

    def check(self, kernel: Launchable, number: int) -> OutputCheck:
        """Launch the kernel once on operand set `number` and compare its output with the reference result."""
        return self.start_check(kernel, number)()

    def start_check(self, kernel: Launchable, number: int) -> Callable[[], OutputCheck]:
        """Start the check of `check`; call the returned function to wait for its result."""
        number %= len(self.sets.kernel)
        operands = self.sets.kernel[number]
        if number not in self._references:
            self._references[number] = ReferenceResult(self._workload, operands)
        reference = self._references[number]
        for output in operands.outputs:
            poison(output)
        if isinstance(operands, Restorable):
            operands.restore()
        kernel(*operands.arguments)
        if isinstance(kernel, Completable):
            kernel.complete(*operands.arguments)
        norms = reference.norms(*operands.outputs)
        return lambda: reference.evaluate(norms, *operands.outputs)


class SetupCache:
    """Workload setups of the current GPU: made on first use, dropped in order of last use when memory runs short."""

    def __init__(self, cold: bool, device: torch.device) -> None:
        """Take the memory that all workloads share; under a `cold` protocol no operand is in L2 at launch."""
        properties = torch.cuda.get_device_properties(device)
        self._cold = cold
        self._l2_bytes = properties.L2_cache_size
        self._memory_bytes = properties.total_memory
        self._context = TimingContext(self._l2_bytes, device)
        self._memory = OperandMemory(device, _sizes(device, _OUTPUT_SHARES), lambda: _sizes(device, _OPERAND_SHARES))
        self._rest = partial(time.sleep, _FIXED_COST_REST_SECONDS)
        self._gpu = f"GPU-{properties.uuid}"
        self._warmed_up = False
        self._entries: OrderedDict[Workload, tuple[ProblemSetup, TimingSetup]] = OrderedDict()

    def get(self, workload: Workload) -> ProblemSetup:
        """Return the setup of the workload.

        Raises:
            torch.OutOfMemoryError: the operands do not fit.
        """
        return self._entry(workload)[0]

    def timer(self, kernel: Launchable, workload: Workload, run: Run | None = None) -> KernelTimer:
        """Return a timer of one of the workload's kernels, in runs where `run` is given; raises like `get`."""
        return KernelTimer(kernel, self._entry(workload)[1], run)

    def final_run(self, workload: Workload) -> Run:
        """Measure what events cost now and return the run for finals of the workload; raises like `get`."""
        setup, timing = self._entry(workload)
        return timing.calibrated_run(setup.level.time_ns)

    def bytes_besides(self, workload: Workload) -> int:
        """Return the device memory that is kept for other workloads alone, in bytes."""
        return sum(setup.own_bytes for other, (setup, _) in self._entries.items() if other != workload)

    def make_room(self, workload: Workload) -> None:
        """Drop workloads of the oldest use until half of `bytes_besides` is free, and free what torch holds unused."""
        self._drop_oldest(workload, self.bytes_besides(workload) // 2)
        torch.cuda.empty_cache()

    def _entry(self, workload: Workload) -> tuple[ProblemSetup, TimingSetup]:
        if workload not in self._entries:
            self._drop_oldest(workload, int(self._memory_bytes * _KEPT_SHARE))
            timing, timed_beside = self._timing(workload), kind_of(workload.kind).timed_beside(workload)
            if timed_beside == workload:
                level_ns = self._reference_level_ns(timing)
            else:
                level_ns = self._reference_level_ns(self._timing(timed_beside))
                timing.calibrate(self._rest)
            level = ReferenceLevel(f"torch {torch.__version__}", self._gpu, level_ns)
            self._entries[workload] = ProblemSetup(workload, timing.sets, level), timing
        self._entries.move_to_end(workload)
        return self._entries[workload]

    def _timing(self, workload: Workload) -> TimingSetup:
        most_bytes = int(self._memory_bytes * _PROBLEM_SHARE)
        sets = OperandSets.make(workload, self._cold, self._l2_bytes, most_bytes, self._memory)
        return TimingSetup(sets, self._context)

    def _drop_oldest(self, but: Workload, most_bytes: int) -> None:
        while self.bytes_besides(but) > most_bytes:
            self._entries.popitem(last=False)

    def _reference_level_ns(self, timing: TimingSetup) -> float:
        """Time the reference kernel beside itself; before the first problem, wait until the clocks are steady."""
        timer = KernelTimer(reference_kernel, timing)

        def level(rest: Callable[[], None]) -> float:
            samples: list[float] = []
            for number in range(_NOMINAL_BLOCKS):
                rest()
                block = timer.block(number)
                samples += block.samples_ns + block.reference_ns
            return estimate(samples).time_ns

        if not self._warmed_up:
            warm_up = WarmUp(time.perf_counter())
            while not warm_up.done:
                warm_up.add(level(lambda: None), time.perf_counter())
            self._warmed_up = True
        timing.calibrate(self._rest)
        pause = min(_MOST_REST_SECONDS, timer.block(0).busy_ns / 1e9 / DUTY)
        nominal_ns = level(partial(time.sleep, pause))  # on clocks that nothing holds back
        timer.close()
        return nominal_ns


def _sizes(device: torch.device, shares: Sequence[float]) -> list[int]:
    """Return shares of the total memory in bytes: equal in every process, whatever is free at the moment."""
    free, total = torch.cuda.mem_get_info(device)
    most = free - _RESERVED_SHARE * total
    return [int(total * share) for share in shares if total * share <= most]
