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
between kernels of both kinds, each has its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

import torch

from gemmtune.engine.measure.blocks import Block
from gemmtune.engine.measure.graphs import Executable, Graph
from gemmtune.engine.measure.instruments import EventPair, Instruments
from gemmtune.engine.measure.operands import Operands
from gemmtune.engine.measure.ring import SLOTS, OperandRing, reference_kernel
from gemmtune.engine.measure.statistics import estimate

__all__ = ["KernelTimer", "Rig"]

Kernel = Callable[..., None]  # of an Operands' arguments
_EXECUTABLES = 8
"""Executable graphs that the blocks of a kernel go through, one after the other."""
_FIXED_COST_BLOCKS = 2 * _EXECUTABLES
"""Blocks of the empty kernel scatter by 0.1 µs (one standard deviation, H200, 2026-11-22)."""


class Rig:
    """What the kernels of one problem are timed on: its operands, the reference's launches, and the fixed cost.

    The reference's launches are captured once: one by one they would cost the host 20 µs each.
    """

    def __init__(self, ring: OperandRing, instruments: Instruments) -> None:
        """Capture the reference; the fixed cost is 0 until `calibrate`."""
        self.ring = ring
        self.instruments = instruments
        self.graph_cost_ns = 0.0
        self.single_cost_ns = 0.0
        with torch.cuda.stream(instruments.stream):
            self._refer(0)  # the vendor's library takes its workspace of a stream with its first launch there
        self._lead = instruments.capture(self._enqueue_lead)
        self._beside = [instruments.capture(partial(self._enqueue_beside, slot)) for slot in range(SLOTS)]
        stream = instruments.main_stream
        self._leading, *self._besides = (Executable(graph, stream) for graph in (self._lead, *self._beside))
        self._empty = self.capture(lambda *_: instruments.helpers.empty(), 0)
        self._shape = self._empty.shape()
        self._executables = [Executable(self._empty, stream) for _ in range(_EXECUTABLES)]

    def calibrate(self, rest: Callable[[], None]) -> None:
        """Measure the fixed cost as kernels are timed: an empty kernel in their place, in each of their executables.

        Each block comes behind a `rest`. For each problem, because it depends on the state of the clocks: 2.8 µs where
        empty kernels follow each other, 3.4 µs where the GPU was idle before, and 0.4 µs of error are 4 % of a kernel
        of 10 µs.
        """
        tools = self.instruments
        in_graph: list[float] = []
        single: list[float] = []
        for number in range(_FIXED_COST_BLOCKS):
            rest()
            self._replay(self._empty, self._executables[number % _EXECUTABLES])
            in_graph.extend(pair.elapsed_ns() for pair in tools.kernel_events)
            with tools.gate.held():
                self.lead()
                tools.single_events[0].around(tools.helpers.empty, tools.main_stream)
            torch.cuda.synchronize()
            single.append(tools.single_events[0].elapsed_ns())
        self.graph_cost_ns = estimate(in_graph).time_ns
        self.single_cost_ns = estimate(single).time_ns

    def lead(self) -> None:
        """Enqueue what runs before a timed launch: one behind an idle GPU takes 3 % longer than its successors."""
        self._leading.launch(self._lead, self.instruments.main_stream)

    def beside(self, slot: int) -> EventPair:
        """Enqueue one launch of the reference; what times it."""
        self._besides[slot].launch(self._beside[slot], self.instruments.main_stream)
        return self.instruments.reference_events[slot]

    def capture(self, kernel: Kernel, part: int) -> Graph:
        """A block of the kernel, on the operands of that part of the ring.

        Raises:
            RuntimeError: a launch of the kernel cannot be captured.
        """
        return self.instruments.capture(partial(self._enqueue_block, kernel, part * SLOTS))

    def executables(self, graph: Graph) -> dict[int, Executable]:
        """Those that run blocks such as `graph`, by the turn in which they do; none where it must have its own."""
        return dict(enumerate(self._executables)) if graph.shape() == self._shape else {}

    def run(self, graph: Graph, executable: Executable, meanwhile: Callable[[], object]) -> Block:
        """Run a captured block; the host does something else `meanwhile`."""
        tools, cost = self.instruments, self.graph_cost_ns
        self._replay(graph, executable, meanwhile)
        return Block(_less(tools.kernel_events, cost), _less(tools.reference_events, cost))

    def _replay(self, graph: Graph, executable: Executable, meanwhile: Callable[[], object] = lambda: None) -> None:
        executable.launch(graph, self.instruments.main_stream)
        meanwhile()
        torch.cuda.synchronize()
        executable.rest()

    def _enqueue_block(self, kernel: Kernel, first: int) -> None:
        stream = self.instruments.stream
        self._lead.join(stream)
        for number, (mine, theirs) in enumerate(zip(self.instruments.kernel_events, self._beside, strict=True), first):
            mine.around(_launch(kernel, self.ring.kernel, number), stream)
            theirs.join(stream)

    def _enqueue_lead(self) -> None:
        self._refer(SLOTS - 1)
        if self.ring.evicts:
            self.instruments.helpers.evict()

    def _enqueue_beside(self, slot: int) -> None:
        self.instruments.reference_events[slot].around(partial(self._refer, slot), self.instruments.stream)

    def _refer(self, slot: int) -> None:
        _launch(reference_kernel, self.ring.reference, slot)()


class KernelTimer:
    """Times one kernel on one rig; a `Timer` of the race."""

    def __init__(self, kernel: Kernel, rig: Rig, *, own_executables: bool = False) -> None:
        """Nothing is launched yet; the kernel must have run once before it is timed, so that it is loaded.

        Args:
            kernel: enqueues one launch.
            rig: the problem's.
            own_executables: whether its blocks run in executables made of them, at 0.2 ms each, where they might also
                share the rig's.
        """
        self._kernel = kernel
        self._rig = rig
        self._blocks: dict[int, Graph] = {}
        self._executables: dict[int, Executable] | None = {} if own_executables else None
        self._singles = 0
        self._started: deque[tuple[EventPair, EventPair]] = deque()

    def start_singles(self, number: int) -> None:
        """Enqueue what the next so many calls of `single` return, at most SLOTS, and do not wait for it."""
        tools = self._rig.instruments
        with tools.gate.held():
            self._rig.lead()
            for _ in range(number):
                slot = self._singles % SLOTS
                mine = tools.single_events[slot]
                mine.around(_launch(self._kernel, self._rig.ring.kernel, slot), tools.main_stream)
                self._started.append((mine, self._rig.beside(slot)))
                self._singles += 1

    def single(self) -> Block:
        """One launch of the kernel and one of the reference, without a graph."""
        if not self._started:
            self.start_singles(1)
        mine, theirs = self._started.popleft()
        torch.cuda.synchronize()
        return Block(_less([mine], self._rig.single_cost_ns), _less([theirs], self._rig.graph_cost_ns))

    def block(self, number: int) -> Block:
        """SLOTS launches of each, on the operands of this number."""
        graph, turn = self._captured(number), number % _EXECUTABLES
        if self._executables is None:
            self._executables = self._rig.executables(graph)
        if turn not in self._executables:
            self._executables[turn] = Executable(graph, self._rig.instruments.main_stream)
        return self._rig.run(graph, self._executables[turn], lambda: self._captured(number + 1))

    def _captured(self, number: int) -> Graph:
        part = number % self._rig.ring.parts
        if part not in self._blocks:
            self._blocks[part] = self._rig.capture(self._kernel, part)
        return self._blocks[part]

    def loop(self) -> tuple[Callable[[], None], int]:
        """What enqueues launches of the kernel alone, without events between them, and how many it enqueues."""
        launches = [_launch(self._kernel, self._rig.ring.kernel, slot) for slot in range(SLOTS)]

        def enqueue() -> None:
            for enqueue_one in launches:
                enqueue_one()

        tools = self._rig.instruments
        graph = tools.capture(enqueue)
        return partial(Executable(graph, tools.main_stream).launch, graph, tools.main_stream), len(launches)

    def close(self) -> None:
        """Free the graphs."""
        self._executables = None
        self._blocks.clear()


def _launch(kernel: Kernel, sets: Sequence[Operands], number: int) -> Callable[[], None]:
    """What enqueues one launch of the kernel, on the set of that number, counted around the ring."""
    operands = sets[number % len(sets)]
    return lambda: kernel(*operands.arguments)


_LEAST_NS = 32.0  # the resolution of event times: no kernel takes less than one tick


def _less(pairs: Sequence[EventPair], cost_ns: float) -> tuple[float, ...]:
    """Times of what ran between the events, without the fixed cost."""
    return tuple(round(max(pair.elapsed_ns() - cost_ns, _LEAST_NS), 1) for pair in pairs)
