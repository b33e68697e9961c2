"""Padding of large products whose rows are not aligned, by a rule instead of a benchmark. Needs torch alone.

The vendor library is two to three times slower where rows of an operand do not start at multiples of 16 bytes.
Inductor's padding pass benchmarks such products while it compiles, and a capture for an absent GPU cannot. The rule
pads where a padded copy costs much less than it gains, so captures and tables see equal products. experiments/padding
compares it with measurements.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor import config
from torch._inductor.fx_passes import pad_mm

__all__ = ["pad_by_rule", "padding_restored", "should_pad"]

_ALIGNMENT_BYTES = 16
_LEAST_PADDED = 512  # of m, n and k: a smaller product gains less than the copies of its operands cost
_benchmarked: Any = getattr(pad_mm, "should_pad", None)


def pad_by_rule() -> None:
    """Let the rule decide while Inductor's setting `shape_padding` is off; do nothing in a torch without the pass."""
    if _benchmarked is not None:
        pad_mm.should_pad = should_pad


def padding_restored() -> None:
    """Undo `pad_by_rule`."""
    if _benchmarked is not None:
        pad_mm.should_pad = _benchmarked


def should_pad(match: Any, mat1: torch.Tensor, mat2: torch.Tensor, op: Any, input: Any = None) -> bool:  # noqa: A002, ANN401 (torch's)
    """Decide in the place of Inductor's function of that name, with its parameters."""
    if config.shape_padding:
        return bool(_benchmarked(match, mat1, mat2, op, input))
    sizes = (*mat1.shape, *mat2.shape)
    if op is torch.ops.aten.bmm or not all(isinstance(size, int) and size >= _LEAST_PADDED for size in sizes):
        return False
    aligned = _ALIGNMENT_BYTES // mat1.element_size()
    rows = (max(mat1.stride()), max(mat2.stride()), mat2.shape[1])
    return mat1.is_cuda and mat1.element_size() == mat2.element_size() == 2 and any(row % aligned for row in rows)
