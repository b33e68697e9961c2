"""Coordinate descent for the large kernels of a graph, and for no others. Needs torch alone.

Inductor chooses the config of a kernel that is no product by a rule or a short race. Its mode max-autotune descends
from there to neighbours, for seconds per kernel. With small kernels this is a gamble: a launch takes as long as they
do, and their operands lie in the GPU's L2 in the model, but not while Inductor times them. A kernel that moves several
times what the L2 holds takes as long in the model as alone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.virtualized import V

from gemmtune.engine.consumers.inductor.loader.boundary import or_else
from gemmtune.engine.consumers.inductor.loader.lowered import has_options

_L2_SIZES = 3  # bytes that a large kernel moves, in sizes of the L2: some 40 us on an H200, see experiments/models


def tuned_if_large(kernel: Any, generated: Callable[[], str]) -> str:  # noqa: ANN401 (torch's)
    """Return a kernel's generated source; a large kernel descends when it runs first.

    Kernels of graphs without a table's options are as they were.
    """
    with config.patch(coordinate_descent_tuning=True) if _is_large(kernel) else nullcontext():
        return generated()


@or_else(lambda *_: False)
def _is_large(kernel: Any) -> bool:  # noqa: ANN401 (torch's)
    device = V.graph.get_current_device_or_throw()
    if device.type != "cuda" or not has_options():
        return False
    l2_bytes = torch.cuda.get_device_properties(device).L2_cache_size
    return bool(kernel.estimate_kernel_num_bytes() >= _L2_SIZES * l2_bytes)
