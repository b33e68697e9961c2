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

from gemmtune.engine.platform.cuda_driver import checked

__all__ = ["Executable", "Graph", "Shape"]

Shape = tuple[object, ...]


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

    def shape(self) -> Shape:
        """What graphs must have in common for one executable to run them in turns, where the same graphs are joined.

        That is the types of its nodes, and the clusters of its kernels.
        """
        status, _, count = driver.cuGraphGetNodes(self.handle)
        checked((status,))
        nodes = checked(driver.cuGraphGetNodes(self.handle, count))
        types = [checked(driver.cuGraphNodeGetType(node)) for node in nodes]
        kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        clusters = [_cluster(node) for node, type_ in zip(nodes, types, strict=True) if type_ == kernel]
        return (*(int(type_) for type_ in types), *clusters)

    def join(self, stream: torch.cuda.Stream) -> None:
        """Enqueue it whole, as a part of the graph that is being captured from `stream`."""
        raw = stream.cuda_stream
        status, *found = driver.cuStreamGetCaptureInfo(raw)
        _, _, graph, before, _, count = checked((status, found))
        part = checked(driver.cuGraphAddChildGraphNode(graph, before, count, self.handle))
        instead = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        checked(driver.cuStreamUpdateCaptureDependencies(raw, [part], None, 1, int(instead)))


class Executable:
    """Runs graphs of one shape, and goes back to the one it was made of.

    Not of other shapes, though the driver would take some: it accepts a kernel without clusters in the place of one
    with clusters, and then does not run it. Blocks of such a kernel took as long as nothing does (CUDA 13.0, H200,
    2026-11-21). And back, because a kernel that is loaded after another was unloaded may have its handle: the driver
    takes that for no change, and runs what lies where the other's code was (illegal instructions, H200, 2026-11-22).
    """

    def __init__(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Make one of `graph`, whose kernels must stay loaded as long as it is used, and upload it on `stream`.

        One that is not uploaded takes longer at first: the vendor's kernels of 12 µs by 3 to 4 % in its first run. And
        in all of its runs where it is updated before it is uploaded: kernels in it by 0.2 µs, the vendor's by up to 0.7
        (experiments/measurement).

        Raises:
            RuntimeError: the driver refuses it.
        """
        self._home = self._graph = graph
        self._handle = checked(driver.cuGraphInstantiate(graph.handle, 0))
        weakref.finalize(self, driver.cuGraphExecDestroy, self._handle).atexit = False
        checked(driver.cuGraphUpload(self._handle, stream.cuda_stream))

    def launch(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Enqueue `graph`, which has the shape of the first one, on `stream`.

        Raises:
            RuntimeError: the driver refuses it.
        """
        self._take(graph)
        checked(driver.cuGraphLaunch(self._handle, stream.cuda_stream))

    def rest(self) -> None:
        """Let go of the kernels of the graph that was launched last, and has ended."""
        self._take(self._home)

    def _take(self, graph: Graph) -> None:
        if graph is not self._graph:
            status, _ = driver.cuGraphExecUpdate(self._handle, graph.handle)
            checked((status,))
            self._graph = graph


def _cluster(node: object) -> tuple[int, int, int]:
    """Blocks of a cluster that a kernel node launches, by its attribute or else by its function; (0, 0, 0) of none."""
    attribute = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    asked = checked(driver.cuGraphKernelNodeGetAttribute(node, attribute)).clusterDim
    if max(asked.x, asked.y, asked.z) > 1:
        return asked.x, asked.y, asked.z
    found = checked(driver.cuGraphKernelNodeGetParams(node))
    function = found.func if int(found.func) else checked(driver.cuKernelGetFunction(found.kern))
    compiled = driver.CUfunction_attribute
    x, y, z = (
        int(checked(driver.cuFuncGetAttribute(which, function)))
        for which in (
            compiled.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
            compiled.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
            compiled.CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
        )
    )
    return max(asked.x, x), max(asked.y, y), max(asked.z, z)
