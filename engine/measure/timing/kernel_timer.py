"""Timing one kernel beside the reference kernel: launches between events, replayed from a CUDA graph. Imports torch.

A block is one replay of a graph that alternates launches of the kernel with launches of the reference, each between
two event nodes. The GPU runs the graph by itself, so no host time lies between the events however short the kernel;
what the events themselves cost is measured on an empty kernel and taken off. Kernel and reference see the same clocks,
because one follows the other within microseconds.

What launches cost depends on the executable graph, by 60 to 80 ns (one standard deviation) for an empty kernel and by
60 to 110 for one of 23 µs, however often it is replayed, and not on where the kernel's code lies (16 of each in turns,
two sweeps, two processes; H200, 2026-11-22). So the kernels of a problem run in the same few executables, the empty one
too. A kernel that is launched in clusters has as many of its own.

There its launches take less than in the place of another's: kernels of 10 to 23 µs 0.07 to 0.27 µs less, which the
empty one, that the fixed cost is taken from, does not show (experiments/measurement). So in finals, which decide
between kernels of both kinds, each has its own, and short ones are timed in runs: several launches one after the other
between two events, so that what events cost, and what they cost here more than there, is shared among these. The time
of the fastest of a few kernels of 2 to 14 µs then differs by 0.02 to 0.06 µs from process to process (one standard
deviation), where launch by launch it was 0.14 to 0.19 (experiments/measurement/processes.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch

from gemmtune.engine.measure.deciding.blocks import Block
from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, OperandSets, reference_kernel
from gemmtune.engine.measure.operands.operands import Operands
from gemmtune.engine.measure.timing.cuda_graphs import Executable, Graph
from gemmtune.engine.measure.timing.timing_context import EventPair, TimingContext
from gemmtune.engine.statistics import estimate

__all__ = ["KernelTimer", "Run", "TimingSetup"]

Kernel = Callable[..., None]  # of an Operands' arguments
_EXECUTABLES = 8
"""Executable graphs that the blocks of a kernel go through, one after the other."""
_FIXED_COST_BLOCKS = 2 * _EXECUTABLES
"""Blocks of the empty kernel scatter by 0.1 µs (one standard deviation, H200, 2026-11-22)."""
_RUN_NS = 32e3
"""Time of a run, of which 0.1 µs are 0.3 %. Longer kernels are timed launch by launch."""
_MOST_IN_RUN = 8


@dataclass(frozen=True, slots=True)
class Run:
    """What lies between two events."""

    launches: int
    """One after the other."""
    cost_ns: float
    """Of each, what events take besides."""


class TimingSetup:
    """What the kernels of one problem are timed on: its operands, the reference's launches, and the fixed cost.

    The reference's launches are captured once: one by one they would cost the host 20 µs each.
    """

    def __init__(self, sets: OperandSets, context: TimingContext) -> None:
        """Capture the reference; the fixed cost is 0 until `calibrate`."""
        self.sets = sets
        self.context = context
        self.one_launch = Run(1, 0.0)
        self.single_cost_ns = 0.0
        with torch.cuda.stream(context.stream):
            self._refer(0)  # the vendor's library takes its workspace of a stream with its first launch there
        self._lead = context.capture(self._enqueue_lead)
        self._beside = [context.capture(partial(self._enqueue_beside, slot)) for slot in range(BLOCK_SAMPLES)]
        stream = context.main_stream
        self._leading, *self._besides = (Executable(graph, stream) for graph in (self._lead, *self._beside))
        self._empty = self.capture(self._nothing, 0)
        self._shape = self._empty.shape()
        self._executables = [Executable(self._empty, stream) for _ in range(_EXECUTABLES)]

    def calibrate(self, rest: Callable[[], None]) -> None:
        """Measure the fixed cost as kernels are timed: an empty kernel in their place, in each of their executables.

        Each block comes behind a `rest`. For each problem, because it depends on the state of the clocks: 2.8 µs where
        empty kernels follow each other, 3.4 µs where the GPU was idle before, and 0.4 µs of error are 4 % of a kernel
        of 10 µs.
        """
        context = self.context
        in_graph: list[float] = []
        single: list[float] = []
        for number in range(_FIXED_COST_BLOCKS):
            rest()
            self._replay(self._empty, self._executables[number % _EXECUTABLES])
            in_graph.extend(pair.elapsed_ns() for pair in context.kernel_events)
            with context.barrier.held():
                self.lead()
                context.single_events[0].around(context.helpers.empty, context.main_stream)
            torch.cuda.synchronize()
            single.append(context.single_events[0].elapsed_ns())
        self.one_launch = Run(1, estimate(in_graph).time_ns)
        self.single_cost_ns = estimate(single).time_ns

    def calibrated_run(self, time_ns: float) -> Run:
        """Runs for kernels that take about so long, and what events cost in them now, in executables of their own.

        Of several sets of operands none comes twice in a block.
        """
        most = self.sets.parts if len(self.sets.kernel) > 1 else _MOST_IN_RUN
        launches = min(ceil(_RUN_NS / time_ns), _MOST_IN_RUN, most)
        if launches == 1:
            return self.one_launch
        block = self.capture(self._nothing, 0, launches)
        costs: list[float] = []
        for executable in [Executable(block, self.context.main_stream) for _ in range(_EXECUTABLES)]:
            self._replay(block, executable)
            costs.extend(pair.elapsed_ns() / launches for pair in self.context.kernel_events)
        return Run(launches, estimate(costs).time_ns)

    def lead(self) -> None:
        """Enqueue what runs before a timed launch: one behind an idle GPU takes 3 % longer than its successors."""
        self._leading.launch(self._lead, self.context.main_stream)

    def beside(self, slot: int) -> EventPair:
        """Enqueue one launch of the reference; what times it."""
        self._besides[slot].launch(self._beside[slot], self.context.main_stream)
        return self.context.reference_events[slot]

    def capture(self, kernel: Kernel, part: int, launches: int = 1) -> Graph:
        """A block of runs of so many launches of the kernel, on the operands of that part of the sets.

        Raises:
            RuntimeError: a launch of the kernel cannot be captured.
        """
        return self.context.capture(partial(self._enqueue_block, kernel, part * BLOCK_SAMPLES * launches, launches))

    def executables(self, graph: Graph) -> dict[int, Executable]:
        """Those that run blocks such as `graph`, by the turn in which they do; none where it must have its own."""
        return dict(enumerate(self._executables)) if graph.shape() == self._shape else {}

    def block(self, graph: Graph, executable: Executable, run: Run, meanwhile: Callable[[], object]) -> Block:
        """Run a captured block of such runs; the host does something else `meanwhile`."""
        context = self.context
        self._replay(graph, executable, meanwhile)
        samples = _less(context.kernel_events, run.cost_ns, run.launches)
        return Block(samples, _less(context.reference_events, self.one_launch.cost_ns), run.launches)

    def _replay(self, graph: Graph, executable: Executable, meanwhile: Callable[[], object] = lambda: None) -> None:
        executable.launch(graph, self.context.main_stream)
        meanwhile()
        torch.cuda.synchronize()
        executable.rest()

    def _enqueue_block(self, kernel: Kernel, first: int, launches: int) -> None:
        stream = self.context.stream
        self._lead.join(stream)
        for slot, (mine, theirs) in enumerate(zip(self.context.kernel_events, self._beside, strict=True)):
            mine.around(_launches(kernel, self.sets.kernel, first + slot * launches, launches), stream)
            theirs.join(stream)

    def _nothing(self, *_: object) -> None:
        self.context.helpers.empty()

    def _enqueue_lead(self) -> None:
        self._refer(BLOCK_SAMPLES - 1)
        if self.sets.evicts:
            self.context.helpers.evict()

    def _enqueue_beside(self, slot: int) -> None:
        self.context.reference_events[slot].around(partial(self._refer, slot), self.context.stream)

    def _refer(self, slot: int) -> None:
        _launches(reference_kernel, self.sets.reference, slot)()


class KernelTimer:
    """Times one kernel on one timing; a `Timer` of the race."""

    def __init__(self, kernel: Kernel, timing: TimingSetup, run: Run | None = None) -> None:
        """Nothing is launched yet; the kernel must have run once before it is timed, so that it is loaded.

        Args:
            kernel: enqueues one launch.
            timing: the problem's.
            run: what a block times, in executables made of it, at 0.2 ms and more each; without one single launches, in
                the timing's where it can share them.
        """
        self._kernel = kernel
        self._timing = timing
        self._given = run
        self._blocks: dict[int, Graph] = {}
        self._executables: dict[int, Executable] | None = {} if run else None
        self._singles = 0
        self._started: deque[tuple[EventPair, EventPair]] = deque()

    @property
    def _run(self) -> Run:
        return self._given or self._timing.one_launch

    def start_singles(self, number: int) -> None:
        """Enqueue what the next so many calls of `single` return, at most BLOCK_SAMPLES, and do not wait for it."""
        context = self._timing.context
        with context.barrier.held():
            self._timing.lead()
            for _ in range(number):
                slot = self._singles % BLOCK_SAMPLES
                mine = context.single_events[slot]
                mine.around(_launches(self._kernel, self._timing.sets.kernel, slot), context.main_stream)
                self._started.append((mine, self._timing.beside(slot)))
                self._singles += 1

    def single(self) -> Block:
        """One launch of the kernel and one of the reference, without a graph."""
        if not self._started:
            self.start_singles(1)
        mine, theirs = self._started.popleft()
        torch.cuda.synchronize()
        return Block(_less([mine], self._timing.single_cost_ns), _less([theirs], self._timing.one_launch.cost_ns))

    def block(self, number: int) -> Block:
        """BLOCK_SAMPLES samples of each, on the operands of this number."""
        graph, turn = self._captured(number), number % _EXECUTABLES
        if self._executables is None:
            self._executables = self._timing.executables(graph)
        if turn not in self._executables:
            self._executables[turn] = Executable(graph, self._timing.context.main_stream)
        return self._timing.block(graph, self._executables[turn], self._run, lambda: self._captured(number + 1))

    def _captured(self, number: int) -> Graph:
        part = number % max(1, self._timing.sets.parts // self._run.launches)
        if part not in self._blocks:
            self._blocks[part] = self._timing.capture(self._kernel, part, self._run.launches)
        return self._blocks[part]

    def loop(self) -> tuple[Callable[[], None], int]:
        """What enqueues launches of the kernel alone, without events between them, and how many it enqueues."""
        context = self._timing.context
        graph = context.capture(_launches(self._kernel, self._timing.sets.kernel, 0, BLOCK_SAMPLES))
        return partial(Executable(graph, context.main_stream).launch, graph, context.main_stream), BLOCK_SAMPLES

    def close(self) -> None:
        """Free the graphs."""
        self._executables = None
        self._blocks.clear()


def _launches(kernel: Kernel, sets: Sequence[Operands], first: int, count: int = 1) -> Callable[[], None]:
    """What enqueues so many launches of the kernel, on the sets from that number on, counted around the sets."""
    arguments = [sets[number % len(sets)].arguments for number in range(first, first + count)]

    def enqueue() -> None:
        for each in arguments:
            kernel(*each)

    return enqueue


_LEAST_NS = 32.0  # the resolution of event times: no kernel takes less than one tick


def _less(pairs: Sequence[EventPair], cost_ns: float, launches: int = 1) -> tuple[float, ...]:
    """Times of one of so many launches between the events, without the fixed cost of each."""
    return tuple(round(max(pair.elapsed_ns() / launches - cost_ns, _LEAST_NS), 1) for pair in pairs)
