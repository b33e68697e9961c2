"""Capture, join, update and replay CUDA graphs through the CUDA driver. Imports torch.

Torch's own graphs can be neither joined nor updated, which saves most of the host's time per kernel.
"""

import weakref
from collections.abc import Callable

import torch
from cuda.bindings import driver

from gemmtune.engine.toolchain.cuda_driver import checked

_EARLY_EXECUTABLES, EARLY_KERNELS = 64, 32
"""Executables made first and never run, and kernels in each."""


def early_executables(graph: "Graph", stream: torch.cuda.Stream) -> list["Executable"]:
    """Return executables to make before those that time, and to keep: the first of a process run kernels faster.

    `graph` holds `EARLY_KERNELS` kernels that are loaded. Source: experiments/measurement.
    """
    return [Executable(graph, stream) for _ in range(_EARLY_EXECUTABLES)]


class Graph:
    """Launches captured from a stream; an `Executable` runs them."""

    def __init__(self, stream: torch.cuda.Stream, enqueue: Callable[[], None]) -> None:
        """Capture the launches that `enqueue` enqueues on `stream`; they must allocate nothing.

        Raises:
            RuntimeError: one of them cannot be captured.
        """
        raw = stream.cuda_stream
        with torch.cuda.stream(stream):
            checked(driver.cuStreamBeginCapture(raw, driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL))
            try:
                enqueue()
            except BaseException:
                driver.cuStreamEndCapture(raw)  # otherwise the stream stays in capture and every later call fails
                raise
            self.handle = checked(driver.cuStreamEndCapture(raw))
        weakref.finalize(self, driver.cuGraphDestroy, self.handle).atexit = False

    def shape(self) -> tuple[object, ...]:
        """Return the types of the graph's nodes and the clusters of its kernels.

        Graphs of equal shape that join equal graphs can share an executable.
        """
        status, _, count = driver.cuGraphGetNodes(self.handle)
        checked((status,))
        nodes = checked(driver.cuGraphGetNodes(self.handle, count))
        types = [checked(driver.cuGraphNodeGetType(node)) for node in nodes]
        kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
        clusters = [_cluster(node) for node, type_ in zip(nodes, types, strict=True) if type_ == kernel]
        return (*(int(type_) for type_ in types), *clusters)

    def join(self, stream: torch.cuda.Stream) -> None:
        """Add the whole graph to the graph that is being captured from `stream`."""
        raw = stream.cuda_stream
        status, *found = driver.cuStreamGetCaptureInfo(raw)
        _, _, graph, before, _, count = checked((status, found))
        part = checked(driver.cuGraphAddChildGraphNode(graph, before, count, self.handle))
        instead = driver.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
        checked(driver.cuStreamUpdateCaptureDependencies(raw, [part], None, 1, int(instead)))


class Executable:
    """Runner of graphs that all have the shape of the graph it was made of.

    The driver would accept some other shapes. With CUDA 13.0 it takes a kernel without clusters in place of one with
    clusters, and then does not run it.
    """

    def __init__(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Instantiate `graph`, whose kernels must stay loaded, and upload it on `stream`.

        Kernels in an executable that was not uploaded before its first run or update take longer; see
        experiments/measurement.

        Raises:
            RuntimeError: the driver refuses it.
        """
        self._original = self._graph = graph
        self._handle = checked(driver.cuGraphInstantiate(graph.handle, 0))
        weakref.finalize(self, driver.cuGraphExecDestroy, self._handle).atexit = False
        checked(driver.cuGraphUpload(self._handle, stream.cuda_stream))

    def launch(self, graph: Graph, stream: torch.cuda.Stream) -> None:
        """Enqueue `graph`, of the original graph's shape, on `stream`; raises RuntimeError if the driver refuses it."""
        self._update_to(graph)
        checked(driver.cuGraphLaunch(self._handle, stream.cuda_stream))

    def restore(self) -> None:
        """Update to the original graph once the last launched one has ended, to release that graph's kernels.

        A kernel loaded later may get the handle of an unloaded one. The driver would see no change, and run whatever
        lies where the old code was.
        """
        self._update_to(self._original)

    def _update_to(self, graph: Graph) -> None:
        if graph is not self._graph:
            status, _ = driver.cuGraphExecUpdate(self._handle, graph.handle)
            checked((status,))
            self._graph = graph


def _cluster(node: object) -> tuple[int, int, int]:
    """Return the cluster size of a kernel node, from its attribute or else its function; (0, 0, 0) without clusters."""
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
