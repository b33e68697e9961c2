"""The tensors of a problem on the GPU. Imports torch."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from typing import Protocol

import torch

from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem

__all__ = ["Operands", "SeparateTensors", "TensorSource", "Values", "make_operands"]

_INTEGER_SCALE = 32.0  # a value in 16,000 is cut off at 127
_LARGEST_FP16 = 65504.0
_BIAS_OF_PRODUCT = 0.25
_LARGEST_SUM = 6.0  # in standard deviations: what a sum of a large output may be
_DRAWN_AT_ONCE = 1 << 28  # elements, so that float32 copies of 8-bit values stay small


@dataclass(frozen=True, slots=True)
class Values:
    """What an operand is filled with: standard-normal values, of integers times `scale` and rounded."""

    dtype: torch.dtype
    scale: float = 1.0

    def fill(self, tensor: torch.Tensor, seed: str) -> torch.Tensor:
        """Draw all elements of a tensor without gaps, the same ones for a seed everywhere; returns it."""
        generator = torch.Generator(tensor.device).manual_seed(_number(seed))
        for part in torch.split(tensor.view(-1), _DRAWN_AT_ONCE):
            if self.dtype.itemsize > 1:
                part.normal_(generator=generator)
                continue
            drawn = torch.randn(part.shape, device=part.device, generator=generator)  # torch draws none of 8 bits
            if not self.dtype.is_floating_point:
                drawn = (drawn * self.scale).round().clamp(-128, 127)
            part.copy_(drawn)
        return tensor


class TensorSource(Protocol):
    """Where the tensors of operands come from."""

    def normal(self, values: Values, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """A contiguous tensor of such values, different ones for another name."""

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """A contiguous tensor to be written to."""


class SeparateTensors:
    """Every tensor in memory of its own, on one device."""

    def __init__(self, device: torch.device) -> None:
        """Draw there."""
        self._device = device

    def normal(self, values: Values, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """As in `TensorSource`."""
        return values.fill(torch.empty(shape, dtype=values.dtype, device=self._device), name)

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """As in `TensorSource`."""
        return torch.empty(shape, dtype=dtype, device=self._device)


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


def make_operands(
    problem: Problem, device: torch.device, number: int = 0, source: TensorSource | None = None
) -> Operands:
    """Standard-normal A and B, and a bias; an output that holds anything.

    Normal values because zeros run faster: 8192³ in bf16 is 13 % faster on zeros than on random data (H200). Integers
    are 32 times normal and rounded; less where fp16 would not hold their sums.

    Args:
        problem: sizes, dtypes and layouts.
        device: where they live.
        number: which of several sets; each has values and memory of its own.
        source: what makes A, B and the output. By default they are drawn, the same for a problem and number everywhere.

    Raises:
        torch.OutOfMemoryError: they do not fit.
    """
    name = f"{problem.name}#{number}" if number else problem.name
    source, scale = source or SeparateTensors(device), _integer_scale(problem)
    batch = (problem.batch,) if problem.op is Op.BMM else ()

    def operand(which: str, rows: int, columns: int, dtype: DType, layout: Layout) -> torch.Tensor:
        values = Values(_dtype(dtype), scale if dtype.is_integer else 1.0)
        if layout is Layout.N:
            return source.normal(values, (*batch, rows, columns), f"{name} {which}")
        return source.normal(values, (*batch, columns, rows), f"{name} {which}").mT

    return Operands(
        a=operand("a", problem.m, problem.k, problem.a_dtype, problem.a_layout),
        b=operand("b", problem.k, problem.n, problem.b_dtype, problem.b_layout),
        out=source.empty(_dtype(problem.out_dtype), (*batch, problem.m, problem.n), f"{name} out"),
        bias=None if problem.bias is Bias.NONE else _bias(problem, device, f"{name} bias", scale),
    )


def _integer_scale(problem: Problem) -> float:
    if problem.out_dtype is not DType.FP16:
        return _INTEGER_SCALE
    return min(_INTEGER_SCALE, math.sqrt(_LARGEST_FP16 / _LARGEST_SUM / math.sqrt(problem.k)))


def _bias(problem: Problem, device: torch.device, name: str, integer_scale: float) -> torch.Tensor:
    """Normal, with a share of the product's standard deviation, so that a kernel that leaves it out is told."""
    shape = (problem.n,) if problem.bias is Bias.VECTOR else (problem.m, problem.n)
    values = SeparateTensors(device).normal(Values(torch.float32), shape, name)
    values *= _BIAS_OF_PRODUCT * math.sqrt(problem.k)
    return (values * integer_scale**2 if problem.a_dtype.is_integer else values).to(_dtype(problem.out_dtype))


def _dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found


def _number(seed: str) -> int:
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1
