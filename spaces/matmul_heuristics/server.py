"""The helper process: what nvMatmulHeuristics says of the problems on its standard input, a line of JSON each.

A process of its own, for the library is native code that may crash, and it has crashed at exit. Nothing but the library
is imported, so it runs by its path. Written against nvidia-matmul-heuristics 0.1.0.27.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from functools import cache
from itertools import product
from typing import Any

_CLUSTERS = [(m, n) for m, n in product((1, 2, 4, 8, 16), repeat=2) if m * n <= 16]
_SHAPES = [(m, n, *cluster) for m in (64, 128, 192, 256) for n in range(16, 257, 16) for cluster in _CLUSTERS]
_MOST_PROPOSALS = 64  # it stops by itself, at about 30 for a large problem
_RASTER_ORDERS = (0, 1)


@cache
def _interface(gpu: str) -> Any:  # noqa: ANN401 (the library has no types)
    return library.NvMatmulHeuristicsInterfaceEx(
        backend=library.NvMatmulHeuristicsTarget.CUTLASS3,  # TRITON proposes the instructions of older GPUs
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
        gpu=library.NvMatmulHeuristicsNvidiaGpu[gpu],
    )


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    heuristics = _interface(question["gpu"])
    layout = library.NvMatmulHeuristicsMatmulLayout[question["layout"]]
    sizes = (question["m"], question["n"], question["k"])
    problem = heuristics.makeNvMatmulHeuristicsProblem(*sizes, layout, question["batch"])
    proposals = heuristics.get(problem, _MOST_PROPOSALS, precision=question["precision"])
    times = _times(heuristics, problem, question, proposals) if proposals else []
    return {"proposals": [_proposal(p["kernel"], p["runtime"]) for p in proposals], "times": times}


def _proposal(kernel: Any, seconds: float) -> list[float]:  # noqa: ANN401 (the library has no types)
    tile = (kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k)
    return [*tile, kernel.cluster_m, kernel.cluster_n, kernel.split_k, seconds]


def _times(heuristics: Any, problem: Any, question: dict[str, Any], proposals: list[Any]) -> list[list[float]]:  # noqa: ANN401
    """(tile m, tile n, cluster m, cluster n, seconds) of every shape the model can price.

    Its time depends on these four and on the raster order, of which the better one is taken: stages, tile k and the
    warps' tiles change nothing (tried for 288 shapes of bf16 4096x4096x4096 on H200 and B200). They have to make sense
    all the same, or the time is 0: a tile k of 128 bytes and a warp as wide as the tile suit the most shapes.
    """
    kernel = proposals[0]["nvmmhKernelConfiguration"]  # its instruction and stages serve for all
    kernel.splitK, kernel.gridSwizzle = 1, 1
    kernel.cta[2] = question["tile_k"]
    precision = question["precision"].encode("ascii")
    priced = []
    for tile_m, tile_n, cluster_m, cluster_n in _SHAPES:
        kernel.cta[0], kernel.cta[1] = tile_m, tile_n
        kernel.warp[:] = (64, tile_n, 64)
        kernel.cluster[:] = (cluster_m, cluster_n)
        found = []
        for order in _RASTER_ORDERS:
            kernel.ctaOrder = order
            # `estimateRuntime` calls a method that its base class lacks: this is what `get` itself calls.
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
            priced.append([tile_m, tile_n, cluster_m, cluster_n, min(found)])
    return priced


if __name__ == "__main__":
    output = os.dup(1)
    os.dup2(2, 1)  # what the library prints is no answer
    import nvMatmulHeuristics as library  # noqa: N813 (its name is that of its classes)

    with os.fdopen(output, "w") as answers:
        for line in sys.stdin:
            answers.write(json.dumps(_answer(json.loads(line))) + "\n")
            answers.flush()
    os._exit(0)  # past the library's own clean-up, in which it crashed
