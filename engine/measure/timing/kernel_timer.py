"""Time one kernel beside the reference kernel, between CUDA events in a CUDA graph. Imports torch.

A block is one replay of a graph that alternates launches of the kernel with launches of the reference, each between two
event nodes. The fixed cost of events is measured on an empty kernel and subtracted.

Times depend on the executable graph. All kernels of a workload therefore share a few executables, and so does the empty
kernel. Kernels with clusters cannot share them. Finals compare both sorts of kernels, so there each kernel gets
executables of its own. Finals time short kernels in runs of several launches between two events, which share the cost
of events. An empty kernel stands between two launches of a run, since some kernels let their successor start early, and
no model launches one kernel behind itself. See experiments/measurement.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import ceil

import torch

from gemmtune.engine.measure.deciding.blocks import Block
from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, OperandSets, reference_kernel
from gemmtune.engine.measure.timing.cuda_graphs import Executable, Graph
from gemmtune.engine.measure.timing.timing_context import EventPair, TimingContext
from gemmtune.engine.seams.workload import Operands
from gemmtune.engine.statistics import estimate

Kernel = Callable[..., None]  # called with the arguments of Operands
_EXECUTABLES = 8  # executable graphs that the blocks of a kernel rotate through
_FIXED_COST_BLOCKS = 2 * _EXECUTABLES  # blocks of the empty kernel, which average out their scatter
_RUN_NS = 32e3  # least time of a run, next to which the scatter of the fixed cost is 0.3 %
_MOST_IN_RUN = 8
_LONG_NS = 1e6  # beside a launch this long, moving what fits in L2 takes no energy
_LEAST_NS = 32.0  # one tick of event times: no kernel takes less


@dataclass(frozen=True, slots=True)
class Run:
    """Launches between two events, with an empty kernel between two of them."""

    launches: int
    """Number of launches in the run."""
    cost_ns: float
    """Fixed cost of the events per launch, in nanoseconds."""


class TimingSetup:
    """Everything that timing the kernels of one workload needs: operands, captured reference launches, fixed costs."""

    def __init__(self, sets: OperandSets, context: TimingContext) -> None:
        """Capture the launches of the reference; the fixed costs are 0 until `calibrate`."""
        self.sets = sets
        self.context = context
        self.one_launch = Run(1, 0.0)
        self.single_cost_ns = 0.0
        with torch.cuda.stream(context.stream):
            self._launch_reference(0)  # the vendor library allocates a stream's workspace with its first launch there
        self._lead_in = context.capture(self._launch_lead_in)
        self._references = [context.capture(partial(self._time_reference, i)) for i in range(BLOCK_SAMPLES)]
        stream = context.main_stream
        self._lead_in_executable = Executable(self._lead_in, stream)
        self._reference_executables = [Executable(graph, stream) for graph in self._references]
        self._empty = self.capture(self._launch_empty, 0)
        self._shape = self._empty.shape()
        self._executables = [Executable(self._empty, stream) for _ in range(_EXECUTABLES)]

    def calibrate(self, rest: Callable[[], None]) -> None:
        """Measure the fixed costs with an empty kernel in the shared executables, each block after a call of `rest`."""
        context = self.context
        in_graph: list[float] = []
        single: list[float] = []
        for number in range(_FIXED_COST_BLOCKS):
            rest()
            self._replay(self._empty, self._executables[number % _EXECUTABLES])
            in_graph.extend(pair.elapsed_ns() for pair in context.kernel_events)
            with context.barrier.held():
                self.enqueue_lead_in()
                context.single_events[0].around(context.helpers.empty, context.main_stream)
            torch.cuda.synchronize()
            single.append(context.single_events[0].elapsed_ns())
        self.one_launch = Run(1, estimate(in_graph).time_ns)
        self.single_cost_ns = estimate(single).time_ns

    def calibrated_run(self, time_ns: float) -> Run:
        """Measure what events cost now and return the run for kernels of this time; no block repeats an operand set."""
        most = self.sets.parts if len(self.sets.kernel) > 1 else _MOST_IN_RUN
        launches = min(ceil(_RUN_NS / time_ns), _MOST_IN_RUN, most)
        if launches == 1:
            return self.one_launch
        block = self.capture(self._launch_empty, 0, launches)
        costs: list[float] = []
        for executable in [Executable(block, self.context.main_stream) for _ in range(_EXECUTABLES)]:
            self._replay(block, executable)
            costs.extend(pair.elapsed_ns() / launches for pair in self.context.kernel_events)
        return Run(launches, estimate(costs).time_ns)

    def enqueue_lead_in(self) -> None:
        """Enqueue the untimed launch that precedes timed ones; a launch on an idle GPU is slower than the next."""
        self._lead_in_executable.launch(self._lead_in, self.context.main_stream)

    def enqueue_reference(self, position: int) -> EventPair:
        """Enqueue the reference launch at this position of a block and return the events that time it."""
        self._reference_executables[position].launch(self._references[position], self.context.main_stream)
        return self.context.reference_events[position]

    def capture(self, kernel: Kernel, part: int, launches: int = 1) -> Graph:
        """Capture a block of runs with this many launches each, on operand sets that no other part uses.

        Raises:
            RuntimeError: a launch of the kernel cannot be captured.
        """
        return self.context.capture(partial(self._enqueue_block, kernel, part * BLOCK_SAMPLES * launches, launches))

    def shared_executables(self, graph: Graph) -> dict[int, Executable]:
        """Return the shared executables by number; none if the graph's shape needs executables of its own."""
        return dict(enumerate(self._executables)) if graph.shape() == self._shape else {}

    def block(self, graph: Graph, executable: Executable, run: Run, meanwhile: Callable[[], object]) -> Block:
        """Replay a captured block of such runs and return its times; the host calls `meanwhile` while it runs."""
        context = self.context
        self._replay(graph, executable, meanwhile)
        samples = _times_ns(context.kernel_events, run.cost_ns, run.launches)
        return Block(samples, _times_ns(context.reference_events, self.one_launch.cost_ns), run.launches)

    def _replay(self, graph: Graph, executable: Executable, meanwhile: Callable[[], object] = lambda: None) -> None:
        executable.launch(graph, self.context.main_stream)
        meanwhile()
        torch.cuda.synchronize()
        executable.restore()

    def _enqueue_block(self, kernel: Kernel, first: int, launches: int) -> None:
        stream = self.context.stream
        self._lead_in.join(stream)
        empty = self.context.helpers.empty
        for i, (events, reference) in enumerate(zip(self.context.kernel_events, self._references, strict=True)):
            events.around(_launches(kernel, self.sets.kernel, first + i * launches, launches, empty), stream)
            reference.join(stream)

    def _launch_empty(self, *_: object) -> None:
        self.context.helpers.empty()

    def _launch_lead_in(self) -> None:
        self._launch_reference(BLOCK_SAMPLES - 1)
        if self.sets.evicts:
            self.context.helpers.evict()

    def _time_reference(self, position: int) -> None:
        self.context.reference_events[position].around(partial(self._launch_reference, position), self.context.stream)

    def _launch_reference(self, position: int) -> None:
        _launches(reference_kernel, self.sets.reference, position)()


class KernelTimer:
    """Timer of one kernel; implements `blocks.Timer`."""

    def __init__(self, kernel: Kernel, timing: TimingSetup, run: Run | None = None) -> None:
        """Prepare without launching anything; the kernel must have run once before it is timed, so that it is loaded.

        Each sample times a `run` in executables of the kernel's own; by default one launch, in shared ones.
        """
        self._kernel = kernel
        self._timing = timing
        self._given_run = run
        self._blocks: dict[int, Graph] = {}
        self._executables: dict[int, Executable] | None = {} if run else None
        self._singles = 0
        self._started: deque[tuple[EventPair, EventPair]] = deque()

    @property
    def _run(self) -> Run:
        return self._given_run or self._timing.one_launch

    def start_singles(self, number: int) -> None:
        """Enqueue the launches of the next calls of `single`, at most BLOCK_SAMPLES, without waiting for them."""
        context = self._timing.context
        with context.barrier.held():
            self._timing.enqueue_lead_in()
            for _ in range(number):
                position = self._singles % BLOCK_SAMPLES
                events = context.single_events[position]
                events.around(_launches(self._kernel, self._timing.sets.kernel, position), context.main_stream)
                self._started.append((events, self._timing.enqueue_reference(position)))
                self._singles += 1

    def single(self) -> Block:
        """Time one launch of the kernel and one of the reference, outside a graph."""
        if not self._started:
            self.start_singles(1)
        events, reference = self._started.popleft()
        torch.cuda.synchronize()
        samples = _times_ns([events], self._timing.single_cost_ns)
        return Block(samples, _times_ns([reference], self._timing.one_launch.cost_ns))

    def block(self, number: int) -> Block:
        """Take BLOCK_SAMPLES samples of each kernel, on the operand sets of this block number."""
        graph, which = self._captured(number), number % _EXECUTABLES
        if self._executables is None:
            self._executables = self._timing.shared_executables(graph)
        if which not in self._executables:
            self._executables[which] = Executable(graph, self._timing.context.main_stream)
        return self._timing.block(graph, self._executables[which], self._run, lambda: self._captured(number + 1))

    def _captured(self, number: int) -> Graph:
        part = number % max(1, self._timing.sets.parts // self._run.launches)
        if part not in self._blocks:
            self._blocks[part] = self._timing.capture(self._kernel, part, self._run.launches)
        return self._blocks[part]

    def loop(self, time_ns: float) -> tuple[Callable[[], None], int]:
        """Return a function that enqueues launches of the kernel alone, without events, and their number.

        Where the operand sets of a block would stay in the L2, launches shorter than 1 ms use all sets there are.
        """
        context, sets = self._timing.context, self._timing.sets
        number = max(BLOCK_SAMPLES, len(sets.kernel)) if sets.evicts and time_ns < _LONG_NS else BLOCK_SAMPLES
        graph = context.capture(_launches(self._kernel, sets.kernel, 0, number))
        return partial(Executable(graph, context.main_stream).launch, graph, context.main_stream), number

    def close(self) -> None:
        """Free the captured graphs."""
        self._executables = None
        self._blocks.clear()


def _launches(
    kernel: Kernel, sets: Sequence[Operands], first: int, count: int = 1, between: Callable[[], None] = lambda: None
) -> Callable[[], None]:
    """Return a function that enqueues `count` launches, on the operand sets from `first` on, cyclically.

    `between` is called between two of them.
    """
    head, *tail = [sets[number % len(sets)].arguments for number in range(first, first + count)]

    def enqueue() -> None:
        kernel(*head)
        for each in tail:
            between()
            kernel(*each)

    return enqueue


def _times_ns(pairs: Sequence[EventPair], cost_ns: float, launches: int = 1) -> tuple[float, ...]:
    """Return the time per launch between each pair of events in nanoseconds, less the fixed cost per launch."""
    return tuple(round(max(pair.elapsed_ns() / launches - cost_ns, _LEAST_NS), 1) for pair in pairs)
