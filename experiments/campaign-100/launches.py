"""Time launches of functions on a cold L2, inside CUDA graphs and one by one from a stream.

The graphs are like those of the protocol `graph-cold-l2` (engine/measure/timing/kernel_timer.py), but with torch alone,
for a process that imports nothing of gemmtune. Without a GPU the host's clock stands in, and its times mean nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import combinations_with_replacement, count
from math import ceil
from statistics import median

import torch
from cuda.bindings import driver

__all__ = ["GPU", "Clock"]

GPU = torch.cuda.is_available()
COLD_BYTES = 512 << 20  # several times the largest L2: between two launches on one pair of operands, so much is read
SPREAD, MOST_OF_FREE = 0.5, 0.8  # shares of all memory, and of what is free, that copies of operands are scattered over
ALIGNMENT = 512  # bytes
INDUCTORS_ALIGNMENT = 16  # bytes; what lies otherwise its code clones first, and the clone's time would be the kernel's
OUTPUTS_APART = 48 << 10  # bytes that outputs lie further on from one graph to the next
SLOTS = 8  # samples of each function in a graph
RUN_US, MOST_IN_RUN = 32, 8  # of launches between two events: what these cost differs from graph to graph, by 0.1 µs
GRAPHS, LEAST_GRAPHS = 16, 4  # as many are made of single launches, and of runs so many fewer, but no less than four
LAUNCHES, WARM = 60, 5  # of each function from the stream, and before them, for clocks and allocator
LEAD_CYCLES, LONGEST_LEAD = 400_000, 25_600_000  # 0.2 and 13 ms in which the host gets ahead of the GPU
EMPTY_PTX = b".version 7.0\n.target sm_70\n.address_size 64\n.visible .entry empty() { ret; }\n"
RESTS = 6  # times a launch, behind it: a GPU without rest meets its power limit (experiments/measurement)

Function = Callable[[torch.Tensor, torch.Tensor], object]
Pairs = Sequence[tuple[torch.Tensor, torch.Tensor]]


class Clock:
    """Timer of functions of two operands beside each other; make one per process, before other memory is taken."""

    def __init__(self) -> None:
        """Allocate the operands' memory for good: a freed block of that size would soon be fragmented."""
        self._memory = torch.empty(_memory_bytes(), dtype=torch.int8, device="cuda" if GPU else "cpu")
        self._stream = torch.cuda.Stream() if GPU else None
        self._lead_cycles = LEAD_CYCLES

    def times(self, functions: Mapping[str, Function], a: torch.Tensor, b: torch.Tensor) -> dict[str, float | str]:
        """Return the results per function; each function must have run before.

        NAME_us: time per launch, in graphs; of short launches in runs.
        NAME_stream_us: time per launch from the stream.
        NAME_host_us: time per call on the host.
        The first two exclude the cost of events.
        late: number of stream launches whose time includes the host's, because a call outlasted the longest lead.
        note: reason for NAME_us being the stream's time, if it is.
        """
        pairs = self._scattered(a, b)
        found = self._from_stream(functions, pairs)
        if not GPU:
            return found | {f"{name}_us": found[f"{name}_stream_us"] for name in functions}
        try:
            shortest_us = max(1, min(found[f"{name}_stream_us"] for name in functions))
            return found | self._in_graphs(functions, pairs, min(ceil(RUN_US / shortest_us), MOST_IN_RUN))
        except RuntimeError as error:
            reason = str(error).partition("\n")[0]
            note = f"times from the stream, for they were not captured: {type(error).__name__}: {reason}"
            return found | {f"{name}_us": found[f"{name}_stream_us"] for name in functions} | {"note": note}

    def _scattered(self, a: torch.Tensor, b: torch.Tensor) -> Pairs:
        """Return copies of the operands far from each other in memory, like the weights of a model.

        Their number is odd, so that each of two alternating functions uses all of them.
        """
        copies = max(3, -(-COLD_BYTES // (a.nbytes + b.nbytes)) | 1) if GPU else 3
        room = self._memory.nbytes // (2 * copies) // ALIGNMENT * ALIGNMENT
        assert max(a.nbytes, b.nbytes) <= room, (
            f"{copies} copies of {a.nbytes} and {b.nbytes} B in {2 * copies * room} B"
        )
        rooms = iter(self._memory.split(room))
        pairs = []
        for _ in range(copies):
            x, y = next(rooms)[: a.nbytes], next(rooms)[: b.nbytes]
            pairs.append((x.view(a.dtype).view(a.shape).copy_(a), y.view(b.dtype).view(b.shape).copy_(b)))
        assert not any(tensor.data_ptr() % INDUCTORS_ALIGNMENT for pair in pairs for tensor in pair)
        return pairs

    def _from_stream(self, functions: Mapping[str, Function], pairs: Pairs) -> dict[str, float | str]:
        """Time single launches of both functions, alternating, with an idle GPU between them."""
        cost_us = location([self._launch(_nothing, pairs[0])[0] for _ in range(WARM + LAUNCHES)][WARM:])
        samples: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in functions}
        for turn in range(WARM + LAUNCHES):
            for place, name in enumerate(_in_turns(functions, turn), turn * len(functions)):
                sample = self._launch(functions[name], pairs[place % len(pairs)])
                time.sleep(RESTS * sample[0] / 1e6)
                samples[name].append(sample)
        found: dict[str, float | str] = {}
        for name, taken in samples.items():
            gpu_us, host_us, _ = zip(*taken[WARM:], strict=True)
            found[f"{name}_stream_us"] = round(location(gpu_us) - cost_us, 3)
            found[f"{name}_host_us"] = round(median(host_us), 1)
        return found | {"late": sum(late for taken in samples.values() for *_, late in taken[WARM:])}

    def _launch(self, function: Function, pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[float, float, bool]:
        """Return the µs between events around one call, the µs of the call on the host, and whether it was late.

        A call is late if the first event was over when the second was enqueued: the GPU then waited for the host. The
        launch is repeated behind a lead twice as long, which later launches keep.
        """
        while True:
            if GPU:
                start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda._sleep(self._lead_cycles)
                start.record()
            began = time.perf_counter()
            function(*pair)
            host_us = (time.perf_counter() - began) * 1e6
            if not GPU:
                return host_us, host_us, False
            end.record()
            late = start.query()
            end.synchronize()
            if not late or self._lead_cycles >= LONGEST_LEAD:
                return start.elapsed_time(end) * 1e3, host_us, late
            self._lead_cycles *= 2

    def _in_graphs(self, functions: Mapping[str, Function], pairs: Pairs, run: int) -> dict[str, float | str]:
        """Time graphs of SLOTS alternating runs of each function, after an untimed launch, with rests between replays.

        Raises:
            RuntimeError: a launch cannot be captured.
        """
        self._run_on_capturing_stream(functions.values(), pairs[0])
        *_, leading = functions.values()
        launches = len(functions) * SLOTS * run
        least = max(LEAST_GRAPHS, GRAPHS // run)
        graphs = max(least, -(-len(pairs) // launches))  # to come to all operands, and no sooner back to one
        samples = self._replayed(functions, leading, pairs, run, graphs)
        # What events cost depends on the graph, and on what runs between them.
        empty = self._replayed({"nothing": _nothing, "leading": leading}, leading, pairs, run, least)
        cost_us = location(empty["nothing"])
        return {f"{name}_us": round(location(taken) - cost_us, 3) for name, taken in samples.items()}

    def _replayed(
        self, functions: Mapping[str, Function], leading: Function, pairs: Pairs, run: int, graphs: int
    ) -> dict[str, list[float]]:
        """Return the µs per launch between the events around each run, by name, for this number of graphs."""
        launches = len(functions) * SLOTS
        events = [[torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)] for _ in range(launches)]
        pool = torch.cuda.graph_pool_handle()

        def enqueue(number: int) -> None:
            places = count(number * launches * run)
            # All live to the end, so each has memory of its own; and small ones have other memory in the next graph.
            kept: list[object] = [torch.empty(number * OUTPUTS_APART, dtype=torch.int8, device="cuda")]
            kept.append(leading(*pairs[(number * launches * run - 1) % len(pairs)]))
            for name, (start, end) in zip(_in_turns(functions, number) * SLOTS, events, strict=True):
                start.record()
                for place in range(run):
                    if place:
                        _nothing()  # as the tuner does: some kernels let their successor start early
                    kept.append(functions[name](*pairs[next(places) % len(pairs)]))
                end.record()

        def replayed_us(graph: torch.cuda.CUDAGraph) -> list[float]:
            graph.replay()
            torch.cuda.synchronize()
            taken_us = [start.elapsed_time(end) * 1e3 for start, end in events]
            time.sleep(RESTS * sum(taken_us) / 1e6)
            return [us / run for us in taken_us]

        captured = [self._captured(partial(enqueue, number), pool) for number in range(graphs)]
        samples: dict[str, list[float]] = {name: [] for name in functions}
        for lap in range(2):  # the first one warms
            for number, graph in enumerate(captured):
                for name, us in zip(_in_turns(functions, number) * SLOTS, replayed_us(graph), strict=True):
                    samples[name] += [us] * lap
        return samples

    def _run_on_capturing_stream(self, functions: Iterable[Function], pair: tuple[torch.Tensor, torch.Tensor]) -> None:
        """Run once outside a capture: libraries take handles and workspaces of a stream with the first launch there."""
        torch.cuda.synchronize()
        with torch.cuda.stream(self._stream):
            for function in functions:
                function(*pair)
            _nothing()
        torch.cuda.synchronize()

    def _captured(self, enqueue: Callable[[], None], pool) -> torch.cuda.CUDAGraph:
        """Capture like `torch.cuda.graph`, but leave the allocator's cache: the driver would scrub freed memory.

        Raises:
            RuntimeError: a launch cannot be captured.
        """
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self._stream):
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                enqueue()
            except BaseException:
                with suppress(RuntimeError):  # the first error is the one that tells
                    graph.capture_end()  # or the stream stays in capture, and every later call fails
                raise
            graph.capture_end()
        return graph


def location(samples: Sequence[float]) -> float:
    """Return the Hodges-Lehmann location, like the tuner: steady if samples have two levels, where a median jumps."""
    return median((x + y) / 2 for x, y in combinations_with_replacement(samples, 2))


def _nothing(*_: object) -> None:
    """Enqueue a kernel of one thread that does nothing, as the tuner does; `torch.cuda._sleep(0)` reads the clock."""
    if GPU:
        stream = torch.cuda.current_stream().cuda_stream
        driver.cuLaunchKernel(_empty_kernel(), 1, 1, 1, 1, 1, 1, 0, stream, ((), ()), 0)


@cache
def _empty_kernel() -> object:
    torch.cuda.current_stream()  # makes torch's context current in this thread
    _, module = driver.cuModuleLoadData(EMPTY_PTX)
    return driver.cuModuleGetFunction(module, b"empty")[1]


def _in_turns(functions: Mapping[str, Function], turn: int) -> list[str]:
    """Return the names in order, reversed every second time."""
    return list(functions)[:: -1 if turn % 2 else 1]


def _memory_bytes() -> int:
    if not GPU:
        return 1 << 20
    free, total = torch.cuda.mem_get_info()
    return int(min(SPREAD * total, MOST_OF_FREE * free)) // ALIGNMENT * ALIGNMENT
