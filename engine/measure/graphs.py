"""CUDA graphs: launches captured once, joined into larger graphs, and replayed. Imports torch.

The driver's own calls, because torch's graphs can neither be joined nor updated: capturing 16 launches costs the host
315 µs, and 219 where half of them is a joined graph; an executable costs 160 to 245 µs, and 25 where it is updated
(H200 host, 2026-11-21).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from cuda.bindings import driver

from gemmtune.engine.measure.driver import checked

__all__ = ["Executable", "Graph"]


class Graph:
    """Launches captured from a stream, without a way to run them: that is an `Executable`'s."""

    def __init__(self, stream: torch.cuda.Stream, enqueue: Callable[[], None]) -> None:
        """Capture what `enqueue` enqueues on `stream`, which must allocate nothing.

        Raises:
            RuntimeError: something in it cannot be captured.
        """
        raw = stream.cuda_stream
        with torch.cuda.stream(stream):
            checked(driver.cuStreamBeginCapture(raw, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            try:
                enqueue()
            except BaseException:
                driver.cuStreamEndCapture(raw)  # or the stream stays in capture, and every later call fails
                raise
            self.handle = checked(driver.cuStreamEndCapture(raw))
        weakref.finalize(self, driver.cuGraphDestroy, self.handle).atexit = False

    def join(self, stream: torch.cuda.Stream) -> None:
        """Enqueue it whole, as a part of the graph that is being captured from `stream`."""
        raw = stream.cuda_stream
        status, *found = driver.cuStreamGetCaptureInfo(raw)
        _, _, graph, before, _, count = checked((status, found))
        part = checked(driver.cuGraphAddChildGraphNode(graph, before, count, self.handle))
        instead = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        checked(driver.cuStreamUpdateCaptureDependencies(raw, [part], None, 1, int(instead)))


class Executable:
    """Runs graphs of the same kernels on other operands.

    Not of other kernels: the driver accepts a kernel without clusters in the place of one with clusters, and then does
    not run it. Blocks of such a kernel took as long as nothing does (CUDA 13.0, H200, 2026-11-21).
    """

    def __init__(self, graph: Graph) -> None:
        """Make one that runs `graph`.

        Raises:
            RuntimeError: the driver refuses it.
        """
        self._graph = graph
        self._handle = checked(driver.cuGraphInstantiate(graph.handle, 0))
        weakref.finalize(self, driver.cuGraphExecDestroy, self._handle).atexit = False

    def launch(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Enqueue `graph`, which has the kernels of the first one, on `stream`.

        Raises:
            RuntimeError: the driver refuses it.
        """
        if graph is not self._graph:
            status, _ = driver.cuGraphExecUpdate(self._handle, graph.handle)
            checked((status,))
            self._graph = graph
        checked(driver.cuGraphLaunch(self._handle, stream.cuda_stream))
