"""What every timer of one GPU shares. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, COLD_BYTES_PER_L2
from gemmtune.engine.measure.timing.cuda_graphs import Executable, Graph
from gemmtune.engine.measure.timing.helper_kernels import HelperKernels, StreamBarrier

__all__ = ["EventPair", "TimingContext"]

_EARLY_EXECUTABLES, _EARLY_KERNELS = 64, 32
"""Executables that are made first and never run, and the kernels of each, so that none of the first times anything.

Where the driver finds place for an executable in memory that it has anyway, kernels in it take less: the library's by
0.5 to 1 µs, Triton's by up to 0.5, and events. That was so for the first problem of a process, and for parts of the
second; behind 32 executables of 25 kernels for none (experiments/measurement/early_executables.py; H200, 2026-11-23).
"""


class EventPair:
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


class TimingContext:
    """Events, barrier, helper kernels, and the stream that graphs are captured from."""

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        """Take them."""
        self.helpers = HelperKernels(COLD_BYTES_PER_L2 * l2_bytes, device)
        self.barrier = StreamBarrier()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.main_stream = torch.cuda.current_stream(device)
        self.kernel_events = [EventPair() for _ in range(BLOCK_SAMPLES)]
        self.reference_events = [EventPair() for _ in range(BLOCK_SAMPLES)]
        self.single_events = [EventPair(external=False) for _ in range(BLOCK_SAMPLES)]
        self.helpers.empty()
        self.helpers.evict()
        early = self.capture(self._many_empty)
        self._early = [Executable(early, self.main_stream) for _ in range(_EARLY_EXECUTABLES)]
        torch.cuda.synchronize()

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """A graph of what `enqueue` enqueues.

        Raises:
            RuntimeError: something in it cannot be captured.
        """
        return Graph(self.stream, enqueue)

    def _many_empty(self) -> None:
        for _ in range(_EARLY_KERNELS):
            self.helpers.empty()
