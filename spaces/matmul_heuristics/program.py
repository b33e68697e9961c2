"""Program that reads a query about a problem and writes what nvMatmulHeuristics answers, both as JSON.

It is a process of its own, because the library is native code that has crashed at exit. It imports only the library, so
it is run by its path. Written for nvidia-matmul-heuristics 0.1.0.27.
"""

import ctypes
import json
import os
import sys
from itertools import product
from typing import Any

_CLUSTERS = [(m, n) for m, n in product((1, 2, 4, 8, 16), repeat=2) if m * n <= 16]
_SHAPES = [(m, n, *cluster) for m in (64, 128, 192, 256) for n in range(16, 257, 16) for cluster in _CLUSTERS]
_MOST_PROPOSALS = 64  # the model stops at about 30 for a large problem
_RASTER_ORDERS = (0, 1)


def _answer(query: dict[str, Any]) -> dict[str, Any]:
    heuristics = library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget.CUTLASS3,  # TRITON proposes the instructions of older GPUs
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu[query["gpu"]],
    )
    layout = library.NvMatmulHeuristicsMatmulLayout[query["layout"]]
    sizes = (query["m"], query["n"], query["k"])
    problem = heuristics.makeNvMatmulHeuristicsProblem(*sizes, layout, query["batch"])
    proposals = heuristics.get(problem, _MOST_PROPOSALS, precision=query["precision"])
    times = _times(heuristics, problem, query, proposals) if proposals else []
    kernels = [proposal["kernel"] for proposal in proposals]
    shapes = [(k.cta_tile_m, k.cta_tile_n, k.cluster_m, k.cluster_n) for k in kernels if k.split_k == 1]
    return {"proposals": shapes, "times": times}


def _times(heuristics: Any, problem: Any, query: dict[str, Any], proposals: list[Any]) -> list[list[float]]:  # noqa: ANN401
    """Return (tile m, tile n, cluster m, cluster n, seconds) of every shape that the model can estimate.

    The time depends on these four and on the raster order; the better order counts. Stages, tile k and the warps' tiles
    do not change it, but the time is 0 unless they are valid: a tile k of 128 bytes and a warp as wide as the tile are
    valid for most shapes.
    """
    kernel = proposals[0]["nvmmhKernelConfiguration"]  # its instruction and stages are valid for all shapes
    kernel.splitK, kernel.gridSwizzle = 1, 1
    kernel.cta[2] = query["tile_k"]
    precision = query["precision"].encode("ascii")
    estimated = []
    for tile_m, tile_n, cluster_m, cluster_n in _SHAPES:
        kernel.cta[0], kernel.cta[1] = tile_m, tile_n
        kernel.warp[:] = (64, tile_n, 64)
        kernel.cluster[:] = (cluster_m, cluster_n)
        found = []
        for order in _RASTER_ORDERS:
            kernel.ctaOrder = order
            # `estimateRuntime` calls a method that its base class lacks; `get` calls this function.
            seconds = heuristics.nvMatmulHeuristicsEstimateRuntime(
                heuristics.handle,
                precision,
                ctypes.c_int(heuristics.target),
                ctypes.byref(problem),
                ctypes.byref(kernel),
                heuristics.hardware_descriptor,
            )
            found += [seconds] if seconds > 0 else []
        if found:
            estimated.append([tile_m, tile_n, cluster_m, cluster_n, min(found)])
    return estimated


if __name__ == "__main__":
    output = os.dup(1)
    os.dup2(2, 1)  # the library prints to standard output, which is for the answer
    import nvMatmulHeuristics as library  # noqa: N813 (the classes have the same prefix)

    with os.fdopen(output, "w") as answer:
        json.dump(_answer(json.load(sys.stdin)), answer)
    os._exit(0)  # skips the library's clean-up, which has crashed
