"""Padding of large products whose rows are not aligned, by a rule instead of a benchmark. Needs torch alone.

The vendor library is two to six times slower where rows of an operand do not start at multiples of 16 bytes.
Inductor's padding pass benchmarks such products while it compiles, and a capture for an absent GPU cannot. The rule
pads where the product gains more than the copies of its operands cost, so captures and tables see equal products.
"""

from __future__ import annotations

from typing import Any

import torch

from gemmtune.engine.consumers.inductor.loader.boundary import or_else

_ALIGNED = 8  # elements of two bytes in 16 bytes, to which Inductor pads
# Seconds on an H200, see experiments/padding: saved per m·n·k, and there where a row has an odd number of elements;
# per copied element of an operand that is contiguous, and of a transposed one; and per launch of a copy.
_SAVED, _SAVED_ODD = 5e-15, 18e-15
_COPY, _TRANSPOSED_COPY = 1.8e-12, 7.4e-12
_LAUNCH = 8e-6


@or_else(lambda *_, **__: False)
def should_pad(match: Any, mat1: torch.Tensor, mat2: torch.Tensor, op: Any, input: Any = None) -> bool:  # noqa: A002, ANN401 (torch's)
    """Decide in the place of Inductor's function of that name."""
    sizes = (*mat1.shape, *mat2.shape)
    is_known = all(isinstance(size, int) for size in sizes) and mat1.element_size() == mat2.element_size() == 2
    if op is torch.ops.aten.bmm or not is_known or not mat1.is_cuda:
        return False
    m, k, _, n = sizes
    rows = (max(mat1.stride()), max(mat2.stride()), n)
    if not any(row % _ALIGNED for row in rows):
        return False
    copied = [operand for operand, size in ((mat1, m), (mat2, n)) if size % _ALIGNED or k % _ALIGNED]
    copies = (_LAUNCH + each.numel() * (_COPY if each.stride(1) == 1 else _TRANSPOSED_COPY) for each in copied)
    return bool(m * n * k * (_SAVED_ODD if any(row % 2 for row in rows) else _SAVED) > sum(copies))
