"""CUDA graphs: launches captured once, joined into larger graphs, and replayed. Imports torch.

The driver's own calls, because torch's graphs cannot be joined, and are instantiated anew for every kernel: of 520 µs a
graph of 16 launches costs the host from capture to destruction, 250 are left where half of them is a joined graph and
the executable is updated in place (H200 host, 2026-11-21).
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
    """Runs graphs, one at a time; those of one shape take each other's place at a tenth of the cost of a new one."""

    def __init__(self) -> None:
        """Nothing is loaded yet."""
        self._graph: Graph | None = None
        self._destroy: weakref.finalize[[object], Executable] | None = None
        self._handle: object = None

    def load(self, graph: Graph) -> None:
        """Make `graph` the one to run.

        Raises:
            RuntimeError: the driver refuses it.
        """
        if graph is self._graph:
            return
        if self._destroy is None or not self._update(graph):
            self._instantiate(graph)
        self._graph = graph

    def launch(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Enqueue `graph` on `stream`.

        Raises:
            RuntimeError: the driver refuses it.
        """
        self.load(graph)
        checked(driver.cuGraphLaunch(self._handle, stream.cuda_stream))

    def _update(self, graph: Graph) -> bool:
        status, _ = driver.cuGraphExecUpdate(self._handle, graph.handle)
        return bool(status == driver.CUresult.CUDA_SUCCESS)

    def _instantiate(self, graph: Graph) -> None:
        if self._destroy is not None:
            self._destroy()
        self._handle = checked(driver.cuGraphInstantiate(graph.handle, 0))
        self._destroy = weakref.finalize(self, driver.cuGraphExecDestroy, self._handle)
        self._destroy.atexit = False
