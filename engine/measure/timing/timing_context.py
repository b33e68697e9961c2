"""Hold the streams, events and helper kernels that all timers of one GPU share. Imports torch."""

from collections.abc import Callable

import torch

from gemmtune.engine.measure.operands.operand_sets import BLOCK_SAMPLES, COLD_BYTES_PER_L2
from gemmtune.engine.measure.timing.cuda_graphs import EARLY_KERNELS, Graph, early_executables
from gemmtune.engine.measure.timing.helper_kernels import HelperKernels, StreamBarrier


class EventPair:
    """Two CUDA events and the time between them."""

    def __init__(self, *, external: bool = True) -> None:
        """Create the events; external ones become nodes of the graph in which they are captured."""
        self._start = torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]
        self._end = torch.cuda.Event(enable_timing=True, external=external)  # type: ignore[no-untyped-call]

    def around(self, enqueue: Callable[[], None], stream: torch.cuda.Stream) -> None:
        """Record the first event, call `enqueue`, record the second; `stream` must be the current stream."""
        self._start.record(stream)  # passing the stream is much faster than looking it up 16 times per config
        enqueue()
        self._end.record(stream)

    def elapsed_ns(self) -> float:
        """Return the time between the last recordings of the two events, in nanoseconds."""
        milliseconds: float = self._start.elapsed_time(self._end)
        return milliseconds * 1e6


class TimingContext:
    """Events, barrier, helper kernels and capture stream of one GPU."""

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        self.helpers = HelperKernels(COLD_BYTES_PER_L2 * l2_bytes, device)
        self.barrier = StreamBarrier()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.main_stream = torch.cuda.current_stream(device)
        self.kernel_events = [EventPair() for _ in range(BLOCK_SAMPLES)]
        self.reference_events = [EventPair() for _ in range(BLOCK_SAMPLES)]
        self.single_events = [EventPair(external=False) for _ in range(BLOCK_SAMPLES)]
        self.helpers.empty()
        self.helpers.evict()
        self._early = early_executables(self.capture(self._many_empty), self.main_stream)
        torch.cuda.synchronize()

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """Capture what `enqueue` enqueues and return it as a graph; raises RuntimeError if that cannot be captured."""
        return Graph(self.stream, enqueue)

    def _many_empty(self) -> None:
        for _ in range(EARLY_KERNELS):
            self.helpers.empty()
