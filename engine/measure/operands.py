"""The tensors of a problem on the GPU. Imports torch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from gemmtune.engine.records.problem import DType, Layout, Problem

__all__ = ["Operands", "make_operands"]

_INTEGER_SCALE = 32.0  # a value in 16,000 is cut off at 127
_LARGEST_FP16 = 65504.0
_LARGEST_SUM = 6.0  # in standard deviations: what a sum of a large output may be


@dataclass(frozen=True, slots=True)
class Operands:
    """A, B and the output of one problem."""

    a: torch.Tensor
    """m×k, with the problem's dtype and layout."""
    b: torch.Tensor
    """k×n, with the problem's dtype and layout."""
    out: torch.Tensor
    """m×n, row-major."""

    @property
    def nbytes(self) -> int:
        """Device memory of the three."""
        return self.a.nbytes + self.b.nbytes + self.out.nbytes


def make_operands(problem: Problem, device: torch.device, number: int = 0) -> Operands:
    """Standard-normal A and B, the same for the same problem and number everywhere, and an uninitialised output.

    Normal values because zeros run faster: 8192³ in bf16 is 13 % faster on zeros than on random data (H200). Integers
    are 32 times normal and rounded; less where fp16 would not hold their sums.

    Args:
        problem: sizes, dtypes and layouts.
        device: where they live.
        number: which of several sets; each has values and memory of its own.

    Raises:
        torch.OutOfMemoryError: they do not fit.
    """
    text = f"{problem.name}#{number}" if number else problem.name
    seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1
    generator, scale = torch.Generator(device).manual_seed(seed), _integer_scale(problem)
    return Operands(
        a=_normal((problem.m, problem.k), problem.a_dtype, problem.a_layout, generator, scale),
        b=_normal((problem.k, problem.n), problem.b_dtype, problem.b_layout, generator, scale),
        out=torch.empty((problem.m, problem.n), dtype=_dtype(problem.out_dtype), device=device),
    )


def _integer_scale(problem: Problem) -> float:
    if problem.out_dtype is not DType.FP16:
        return _INTEGER_SCALE
    return min(_INTEGER_SCALE, math.sqrt(_LARGEST_FP16 / _LARGEST_SUM / math.sqrt(problem.k)))


def _normal(
    size: tuple[int, int], dtype: DType, layout: Layout, generator: torch.Generator, integer_scale: float
) -> torch.Tensor:
    stored = size if layout is Layout.N else size[::-1]
    if dtype.itemsize == 1:  # torch draws none of 8 bits
        values = torch.randn(stored, device=generator.device, generator=generator)
        values = ((values * integer_scale).round().clamp(-128, 127) if dtype.is_integer else values).to(_dtype(dtype))
    else:
        values = torch.randn(stored, dtype=_dtype(dtype), device=generator.device, generator=generator)
    return values if layout is Layout.N else values.t()


def _dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found
