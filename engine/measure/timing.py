"""Timing one kernel beside the reference kernel: launches between events, replayed from a CUDA graph. Imports torch.

A block is one replay of a graph that alternates launches of the kernel with launches of the reference, each between
two event nodes. The GPU runs the graph by itself, so no host time lies between the events however short the kernel;
what the events themselves cost is measured on an empty kernel and taken off. Kernel and reference see the same clocks,
because one follows the other within microseconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from gemmtune.engine.measure.cuda import Gate, HelperKernels
from gemmtune.engine.measure.operands import Operands, make_operands
from gemmtune.engine.measure.race import Block
from gemmtune.engine.measure.statistics import estimate
from gemmtune.engine.records.problem import Problem

__all__ = ["SLOTS", "Instruments", "KernelTimer", "OperandRing", "reference_kernel"]

SLOTS = 8
"""Launches of the kernel in a block, and of the reference."""

Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]
_FIXED_COST_BLOCKS = 4
_COLD_BYTES_PER_L2 = 3  # bytes touched between two uses of an operand, as a multiple of L2, that leave nothing of it


def reference_kernel(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    """The vendor library's GEMM on the same operands: what its time does, a candidate's would do too.

    A kernel of another problem would see other limits: where memory bounds one and the power limit the other, one
    slows down by 10 % while the other does not move.
    """
    torch.backends.cuda.matmul.fp32_precision = "ieee"  # whatever another kernel has set: the reference never changes
    torch.mm(a, b, out=out)


@dataclass(frozen=True, slots=True)
class OperandRing:
    """The sets of operands of one problem that launches rotate through."""

    kernel: tuple[Operands, ...]
    """What the timed kernel works on, in the order of slots."""
    reference: tuple[Operands, ...]
    """What the reference kernel works on: other memory where the protocol is cold."""
    evicts: bool
    """Whether L2 must be emptied besides, because the sets together are too small to do it."""

    @classmethod
    def make(cls, problem: Problem, cold: bool, l2_bytes: int, memory_bytes: int, device: torch.device) -> OperandRing:
        """Draw them: up to SLOTS sets for each of the two, within `memory_bytes`, at least one.

        Several sets also average over where in memory operands happen to lie, which moves some kernels by 5 %.

        Raises:
            torch.OutOfMemoryError: they do not fit.
        """
        first = make_operands(problem, device)
        if not cold:
            return cls((first,), (first,), evicts=False)
        sets = max(1, min(SLOTS, memory_bytes // (2 * first.nbytes)))
        others = [make_operands(problem, device, number) for number in range(1, 2 * sets)]
        evicts = sets * first.nbytes < _COLD_BYTES_PER_L2 * l2_bytes
        return cls((first, *others[: sets - 1]), tuple(others[sets - 1 :]), evicts)

    @property
    def nbytes(self) -> int:
        """Device memory of all sets."""
        distinct = {id(operands): operands.nbytes for operands in (*self.kernel, *self.reference)}
        return sum(distinct.values())


class Instruments:
    """What every timer of one GPU shares: events, gate, helper kernels, and the fixed cost they have."""

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        """Take them; the fixed cost is 0 until `calibrate`."""
        self.helpers = HelperKernels(_COLD_BYTES_PER_L2 * l2_bytes, device)
        self.gate = Gate()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.main_stream = torch.cuda.current_stream(device)
        self.pool = torch.cuda.graph_pool_handle()
        self.kernel_events = [_Pair() for _ in range(SLOTS)]
        self.reference_events = [_Pair() for _ in range(SLOTS)]
        self.single_events = (_Pair(external=False), _Pair(external=False))
        self.helpers.empty()
        self.helpers.evict()
        torch.cuda.synchronize()
        # It lives as long as its pool is to: torch gives up a pool of memory with the last graph that uses it.
        self._empty_graph = self.capture(self._enqueue_empty)
        self.graph_cost_ns = 0.0
        self.single_cost_ns = 0.0

    def calibrate(self) -> None:
        """Measure the fixed cost, once the clocks have settled: a GPU that was idle takes a quarter longer."""
        self.graph_cost_ns = self._graph_cost()
        self.single_cost_ns = self._single_cost()

    def capture(self, enqueue: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """A graph of what `enqueue` enqueues.

        Raises:
            RuntimeError: something in it cannot be captured.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream):
            graph.capture_begin(pool=self.pool, capture_error_mode="thread_local")
            try:
                enqueue()
            except BaseException:
                with contextlib.suppress(RuntimeError):
                    graph.capture_end()  # or the stream stays in capture, and every later call fails
                raise
            graph.capture_end()
        return graph

    def _enqueue_empty(self) -> None:
        for pair in (*self.kernel_events, *self.reference_events):
            pair.around(self.helpers.empty, self.stream)

    def _graph_cost(self) -> float:
        samples: list[float] = []
        for _ in range(_FIXED_COST_BLOCKS):
            self._empty_graph.replay()
            torch.cuda.synchronize()
            samples.extend(pair.elapsed_ns() for pair in (*self.kernel_events, *self.reference_events))
        return estimate(samples).time_ns

    def _single_cost(self) -> float:
        samples: list[float] = []
        for _ in range(_FIXED_COST_BLOCKS * SLOTS):
            with self.gate.held():
                for pair in self.single_events:
                    pair.around(self.helpers.empty, self.main_stream)
            torch.cuda.synchronize()
            samples.extend(pair.elapsed_ns() for pair in self.single_events)
        return estimate(samples).time_ns


class KernelTimer:
    """Times one kernel on one ring; a `Timer` of the race."""

    def __init__(self, kernel: Kernel, ring: OperandRing, instruments: Instruments) -> None:
        """Nothing is launched yet; the kernel must have run once before it is timed, so that it is loaded."""
        self._kernel = kernel
        self._ring = ring
        self._instruments = instruments
        self._graph: torch.cuda.CUDAGraph | None = None
        self._singles = 0
        self._started = False

    def start_single(self) -> None:
        """Enqueue what the next `single` returns, and do not wait for it."""
        tools, slot = self._instruments, self._singles
        mine, theirs = tools.single_events
        with tools.gate.held():
            self._lead()
            mine.around(self._launch(self._kernel, self._ring.kernel, slot), tools.main_stream)
            theirs.around(self._launch(reference_kernel, self._ring.reference, slot), tools.main_stream)
        self._singles += 1
        self._started = True

    def single(self) -> Block:
        """One launch of the kernel and one of the reference, without a graph."""
        if not self._started:
            self.start_single()
        self._started = False
        tools = self._instruments
        mine, theirs = tools.single_events
        torch.cuda.synchronize()
        return Block(_less([mine], tools.single_cost_ns), _less([theirs], tools.single_cost_ns))

    def block(self) -> Block:
        """SLOTS launches of each."""
        tools = self._instruments
        if self._graph is None:
            self._graph = tools.capture(self._enqueue)
            self._graph.replay()  # untimed: short kernels take up to 7 % longer in a graph's first replay
        self._graph.replay()
        torch.cuda.synchronize()
        cost = tools.graph_cost_ns
        return Block(_less(tools.kernel_events, cost), _less(tools.reference_events, cost))

    def loop(self) -> tuple[Callable[[], None], int]:
        """What enqueues launches of the kernel alone, without events between them, and how many it enqueues."""
        launches = [self._launch(self._kernel, self._ring.kernel, slot) for slot in range(SLOTS)]

        def enqueue() -> None:
            for launch in launches:
                launch()

        return self._instruments.capture(enqueue).replay, len(launches)

    def close(self) -> None:
        """Free the graph."""
        self._graph = None

    def _enqueue(self) -> None:
        tools = self._instruments
        self._lead()
        for slot, (mine, theirs) in enumerate(zip(tools.kernel_events, tools.reference_events, strict=True)):
            mine.around(self._launch(self._kernel, self._ring.kernel, slot), tools.stream)
            theirs.around(self._launch(reference_kernel, self._ring.reference, slot), tools.stream)

    def _lead(self) -> None:
        """What runs before the first timed launch: a launch behind an idle GPU takes 3 % longer than its successors."""
        self._launch(reference_kernel, self._ring.reference, SLOTS - 1)()
        if self._ring.evicts:
            self._instruments.helpers.evict()

    @staticmethod
    def _launch(kernel: Kernel, sets: Sequence[Operands], slot: int) -> Callable[[], None]:
        operands = sets[slot % len(sets)]
        return lambda: kernel(operands.a, operands.b, operands.out)


class _Pair:
    """Two events and the time between them."""

    def __init__(self, *, external: bool = True) -> None:
        """Make them; external ones become nodes of the graph they are captured in."""
        self._start = torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]

    def around(self, enqueue: Callable[[], None], stream: torch.cuda.Stream) -> None:
        """Record one event on the current stream, which is `stream`, enqueue, record the other."""
        self._start.record(stream)  # looking up the current stream, 16 times a config, took a fifth of the host's time
        enqueue()
        self._end.record(stream)

    def elapsed_ns(self) -> float:
        """Time between the two when they were last recorded."""
        milliseconds: float = self._start.elapsed_time(self._end)
        return milliseconds * 1e6


_LEAST_NS = 32.0  # the resolution of event times: no kernel takes less than one tick


def _less(pairs: Sequence[_Pair], cost_ns: float) -> tuple[float, ...]:
    return tuple(round(max(pair.elapsed_ns() - cost_ns, _LEAST_NS), 1) for pair in pairs)
