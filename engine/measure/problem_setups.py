"""The stands of one GPU: set up when a problem first comes, kept while memory allows. Imports torch."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from gemmtune.engine.measure.deciding.clock_drift import Settling
from gemmtune.engine.measure.operands.operand_memory import Arena
from gemmtune.engine.measure.operands.operand_sets import OperandRing, reference_kernel
from gemmtune.engine.measure.problem_setup import Stand
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer, Rig, Run
from gemmtune.engine.measure.timing.timing_context import Instruments
from gemmtune.engine.platform import vendor_gemm as vendor
from gemmtune.engine.records.measurement import ReferenceLevel
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.seams.space import Launchable
from gemmtune.engine.statistics import estimate

__all__ = ["Stands"]

_OUTPUTS_SHARES_OF_MEMORY = (1 / 16, 1 / 64)
_PIECE_SHARES_OF_MEMORY = (1 / 4, 1 / 8, 1 / 16, 1 / 32)  # sparsely filled: few tensors find their places taken
_MOST_OF_FREE_MEMORY = 0.5  # so that any number of processes leaves some to the next
_KEPT_SHARE_OF_MEMORY = 0.2
_RING_SHARE_OF_MEMORY = 0.1
_NOMINAL_BLOCKS = 8
_MOST_REST_SECONDS = 5e-3
_FIXED_COST_REST_SECONDS = 2e-3  # behind 5 ms they cost 34 ns more (s.e. 24, nine problems, H200, 2026-11-22)
_DUTY = 0.15  # as in calm.py, from which on more rest changes nothing


@dataclass(frozen=True, slots=True)
class _Place:
    stand: Stand
    rig: Rig


class Stands:
    """Sets up problems on the current GPU."""

    def __init__(self, cold: bool, device: torch.device) -> None:
        """Take the instruments; a `cold` protocol finds no operand in L2."""
        properties = torch.cuda.get_device_properties(device)
        self._cold = cold
        self._device = device
        self._l2_bytes = properties.L2_cache_size
        self._memory_bytes = properties.total_memory
        self._instruments = Instruments(self._l2_bytes, device)
        self._arena = Arena(
            device, _sizes(device, _OUTPUTS_SHARES_OF_MEMORY), lambda: _sizes(device, _PIECE_SHARES_OF_MEMORY)
        )
        self._rest = partial(time.sleep, _FIXED_COST_REST_SECONDS)
        self._board = f"GPU-{properties.uuid}"
        self._settled = False
        self._places: OrderedDict[Problem, _Place] = OrderedDict()

    def of(self, problem: Problem) -> Stand:
        """The problem's tensors and reference level.

        Raises:
            torch.OutOfMemoryError: its operands do not fit.
        """
        return self._place(problem).stand

    def timer(self, kernel: Launchable, problem: Problem, run: Run | None = None) -> KernelTimer:
        """A timer of a kernel of the problem, launch by launch or in runs.

        Raises:
            torch.OutOfMemoryError: its operands do not fit.
        """
        return KernelTimer(kernel, self._place(problem).rig, run)

    def run(self, problem: Problem) -> Run:
        """The runs that finals of the problem are timed in, as they are priced now.

        Raises:
            torch.OutOfMemoryError: its operands do not fit.
        """
        place = self._place(problem)
        return place.rig.priced(place.stand.level.time_ns)

    def _place(self, problem: Problem) -> _Place:
        if problem not in self._places:
            self._make_room()
            rig, beside = self._rig(problem), vendor.stand_in(problem)
            if beside == problem:
                level_ns = self._nominal(rig)
            else:
                level_ns = self._nominal(self._rig(beside))
                rig.calibrate(self._rest)
            level = ReferenceLevel(f"torch {torch.__version__}", self._board, level_ns)
            self._places[problem] = _Place(Stand(problem, rig.ring, level), rig)
        self._places.move_to_end(problem)
        return self._places[problem]

    def _rig(self, problem: Problem) -> Rig:
        share = int(self._memory_bytes * _RING_SHARE_OF_MEMORY)
        return Rig(OperandRing.make(problem, self._cold, self._l2_bytes, share, self._arena), self._instruments)

    def _make_room(self) -> None:
        kept = int(self._memory_bytes * _KEPT_SHARE_OF_MEMORY)
        while self._places and sum(place.stand.own_bytes for place in self._places.values()) > kept:
            self._places.popitem(last=False)

    def _nominal(self, rig: Rig) -> float:
        """The reference kernel's level on this rig; the first time, only once the clocks have settled."""
        timer = KernelTimer(reference_kernel, rig)

        def level(rest: Callable[[], None]) -> float:
            samples: list[float] = []
            for number in range(_NOMINAL_BLOCKS):
                rest()
                block = timer.block(number)
                samples += block.samples_ns + block.reference_ns
            return estimate(samples).time_ns

        if not self._settled:
            settling = Settling(time.perf_counter())
            while not settling.done:
                settling.add(level(_no_rest), time.perf_counter())
            self._settled = True
        rig.calibrate(self._rest)
        pause = min(_MOST_REST_SECONDS, timer.block(0).busy_ns / 1e9 / _DUTY)
        nominal_ns = level(partial(time.sleep, pause))  # on clocks that nothing holds back
        timer.close()
        return nominal_ns


def _no_rest() -> None:
    """Go on at once."""


def _sizes(device: torch.device, shares: Sequence[float]) -> list[int]:
    """Shares of all memory, so that places are the same in every process, also where a little less is free."""
    free, total = torch.cuda.mem_get_info(device)
    return [int(total * share) for share in shares if total * share <= _MOST_OF_FREE_MEMORY * free]
