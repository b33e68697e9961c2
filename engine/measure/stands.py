"""The stands of one GPU: set up when a problem first comes, kept while memory allows. Imports torch."""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import partial

import torch

from gemmtune.engine.measure.arena import Arena
from gemmtune.engine.measure.drift import Settling
from gemmtune.engine.measure.instruments import Instruments
from gemmtune.engine.measure.ring import OperandRing, reference_kernel
from gemmtune.engine.measure.stand import Stand
from gemmtune.engine.measure.statistics import estimate
from gemmtune.engine.measure.timing import KernelTimer, Rig
from gemmtune.engine.records.measurement import Level
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.seams import vendor
from gemmtune.engine.seams.space import Launchable

__all__ = ["Stands"]

_ARENA_SHARES_OF_MEMORY = (0.5, 0.25, 0.125)  # sparsely filled, so that few tensors find their places taken
_MOST_OF_FREE_MEMORY = 0.8
_KEPT_SHARE_OF_MEMORY = 0.3
_RING_SHARE_OF_MEMORY = 0.1
_NOMINAL_BLOCKS = 8
_REST_SECONDS = 5e-3


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
        self._arena = Arena(_arena_bytes(*torch.cuda.mem_get_info(device)), device)
        self._rest = partial(time.sleep, _REST_SECONDS)
        self._board = f"GPU-{properties.uuid}"
        self._settled = False
        self._places: OrderedDict[Problem, _Place] = OrderedDict()

    def of(self, problem: Problem) -> Stand:
        """The problem's tensors and reference level.

        Raises:
            torch.OutOfMemoryError: its operands do not fit.
        """
        return self._place(problem).stand

    def timer(self, kernel: Launchable, problem: Problem) -> KernelTimer:
        """A timer of a kernel of the problem.

        Raises:
            torch.OutOfMemoryError: its operands do not fit.
        """
        return KernelTimer(kernel, self._place(problem).rig)

    def _place(self, problem: Problem) -> _Place:
        if problem not in self._places:
            self._make_room()
            rig, beside = self._rig(problem, self._arena), vendor.stand_in(problem)
            if beside == problem:
                level_ns = self._nominal(rig)
            else:
                level_ns = self._nominal(self._rig(beside, Arena(0, self._device)))
                rig.calibrate(self._rest)
            level = Level(f"torch {torch.__version__}", self._board, level_ns)
            self._places[problem] = _Place(Stand(problem, rig.ring, level), rig)
        self._places.move_to_end(problem)
        return self._places[problem]

    def _rig(self, problem: Problem, arena: Arena) -> Rig:
        share = int(self._memory_bytes * _RING_SHARE_OF_MEMORY)
        ring = OperandRing.make(problem, self._cold, self._l2_bytes, share, self._device, arena)
        return Rig(ring, self._instruments)

    def _make_room(self) -> None:
        kept = int(self._memory_bytes * _KEPT_SHARE_OF_MEMORY)
        while self._places and sum(place.stand.nbytes for place in self._places.values()) > kept:
            problem, _ = self._places.popitem(last=False)
            self._arena.release(problem.name)

    def _nominal(self, rig: Rig) -> float:
        """The reference kernel's level on this rig; the first time, only once the clocks have settled."""
        timer = KernelTimer(reference_kernel, rig)

        def level(blocks: int, pause_seconds: float = 0.0) -> float:
            samples: list[float] = []
            for number in range(blocks):
                time.sleep(pause_seconds)
                block = timer.block(number)
                samples += block.samples_ns + block.reference_ns
            return estimate(samples).time_ns

        if not self._settled:
            settling = Settling(time.perf_counter())
            while not settling.done:
                settling.add(level(_NOMINAL_BLOCKS), time.perf_counter())
            self._settled = True
        rig.calibrate(self._rest)
        nominal_ns = level(_NOMINAL_BLOCKS, _REST_SECONDS)  # on clocks that nothing holds back
        timer.close()
        return nominal_ns


def _arena_bytes(free: int, total: int) -> int:
    """A share of all memory, so that places are the same in every process, also where a little less is free."""
    shares = (int(total * share) for share in _ARENA_SHARES_OF_MEMORY)
    return next((share for share in shares if share <= _MOST_OF_FREE_MEMORY * free), 0)
