"""What every timer of one GPU shares. Imports torch."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gemmtune.engine.measure.cuda import Gate, HelperKernels
from gemmtune.engine.measure.graphs import Graph
from gemmtune.engine.measure.ring import COLD_BYTES_PER_L2, SLOTS

__all__ = ["EventPair", "Instruments"]


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


class Instruments:
    """Events, gate, helper kernels, and the stream that graphs are captured from."""

    def __init__(self, l2_bytes: int, device: torch.device) -> None:
        """Take them."""
        self.helpers = HelperKernels(COLD_BYTES_PER_L2 * l2_bytes, device)
        self.gate = Gate()
        self.stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self.main_stream = torch.cuda.current_stream(device)
        self.kernel_events = [EventPair() for _ in range(SLOTS)]
        self.reference_events = [EventPair() for _ in range(SLOTS)]
        self.single_events = [EventPair(external=False) for _ in range(SLOTS)]
        self.helpers.empty()
        self.helpers.evict()
        torch.cuda.synchronize()

    def capture(self, enqueue: Callable[[], None]) -> Graph:
        """A graph of what `enqueue` enqueues.

        Raises:
            RuntimeError: something in it cannot be captured.
        """
        return Graph(self.stream, enqueue)
