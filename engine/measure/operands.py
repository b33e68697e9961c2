"""The tensors of a problem on the GPU. Imports torch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass

import torch

from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem

__all__ = ["Operands", "make_operands"]

_INTEGER_SCALE = 32.0  # a value in 16,000 is cut off at 127
_LARGEST_FP16 = 65504.0
_BIAS_OF_PRODUCT = 0.25
_LARGEST_SUM = 6.0  # in standard deviations: what a sum of a large output may be


@dataclass(frozen=True, slots=True)
class Operands:
    """A, B and the output of one problem, each behind a dimension of the batch where the operation is bmm."""

    a: torch.Tensor
    """m×k, with the problem's dtype and layout."""
    b: torch.Tensor
    """k×n, with the problem's dtype and layout."""
    out: torch.Tensor
    """m×n, row-major."""
    bias: torch.Tensor | None = None
    """What addmm adds, with the output's dtype: n, or m×n row-major."""

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """What a kernel is called with."""
        return (self.a, self.b, self.out) if self.bias is None else (self.a, self.b, self.out, self.bias)

    @property
    def nbytes(self) -> int:
        """Device memory of all."""
        return sum(tensor.nbytes for tensor in self.arguments)


def make_operands(problem: Problem, device: torch.device, number: int = 0) -> Operands:
    """Standard-normal A and B, and a bias, the same for a problem and number everywhere; an uninitialised output.

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
    batch = (problem.batch,) if problem.op is Op.BMM else ()
    return Operands(
        a=_normal((*batch, problem.m, problem.k), problem.a_dtype, problem.a_layout, generator, scale),
        b=_normal((*batch, problem.k, problem.n), problem.b_dtype, problem.b_layout, generator, scale),
        out=torch.empty((*batch, problem.m, problem.n), dtype=_dtype(problem.out_dtype), device=device),
        bias=None if problem.bias is Bias.NONE else _bias(problem, generator, scale),
    )


def _integer_scale(problem: Problem) -> float:
    if problem.out_dtype is not DType.FP16:
        return _INTEGER_SCALE
    return min(_INTEGER_SCALE, math.sqrt(_LARGEST_FP16 / _LARGEST_SUM / math.sqrt(problem.k)))


def _bias(problem: Problem, generator: torch.Generator, integer_scale: float) -> torch.Tensor:
    """Normal, with a share of the product's standard deviation, so that a kernel that leaves it out is told."""
    shape = (problem.n,) if problem.bias is Bias.VECTOR else (problem.m, problem.n)
    values = torch.randn(shape, device=generator.device, generator=generator)
    values *= _BIAS_OF_PRODUCT * math.sqrt(problem.k)
    return (values * integer_scale**2 if problem.a_dtype.is_integer else values).to(_dtype(problem.out_dtype))


def _normal(
    size: tuple[int, ...], dtype: DType, layout: Layout, generator: torch.Generator, integer_scale: float
) -> torch.Tensor:
    stored = size if layout is Layout.N else (*size[:-2], size[-1], size[-2])
    if dtype.itemsize == 1:  # torch draws none of 8 bits
        values = torch.randn(stored, device=generator.device, generator=generator)
        values = ((values * integer_scale).round().clamp(-128, 127) if dtype.is_integer else values).to(_dtype(dtype))
    else:
        values = torch.randn(stored, dtype=_dtype(dtype), device=generator.device, generator=generator)
    return values if layout is Layout.N else values.mT


def _dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found
