"""Make the tensors of a problem on the GPU. Imports torch."""

import hashlib
import math
from dataclasses import dataclass

import torch

from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem

__all__ = ["Operands", "TensorSource", "Values", "make_operands"]

_INTEGER_SCALE = 32.0  # standard deviation of integer operands: 1 value in 16,000 is cut off at 127
_LARGEST_FP16 = 65504.0
_BIAS_SHARE = 0.25  # standard deviation of a bias, as a share of the product's
_LARGEST_SUM = 6.0  # largest sum to expect in a large output, in standard deviations
_MOST_DRAWN = 1 << 28  # elements drawn at once, so that float32 copies of 8-bit values stay small


@dataclass(frozen=True, slots=True)
class Values:
    """Distribution of an operand's values: standard normal; integers are multiplied by `scale` and rounded."""

    dtype: torch.dtype
    scale: float = 1.0

    def fill(self, tensor: torch.Tensor, seed: str) -> torch.Tensor:
        """Draw all elements of a contiguous tensor, equal for equal seeds on every device, and return the tensor."""
        number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> 1
        generator = torch.Generator(tensor.device).manual_seed(number)
        for part in torch.split(tensor.view(-1), _MOST_DRAWN):
            if self.dtype.itemsize > 1:
                part.normal_(generator=generator)
                continue
            drawn = torch.randn(part.shape, device=part.device, generator=generator)  # torch draws no 8-bit values
            if not self.dtype.is_floating_point:
                drawn = (drawn * self.scale).round().clamp(-128, 127)
            part.copy_(drawn)
        return tensor


class TensorSource:
    """Source of operand tensors on one device; this one gives every tensor memory of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def normal(self, values: Values, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a contiguous tensor of such values; another name gets other values."""
        return values.fill(torch.empty(shape, dtype=values.dtype, device=self._device), name)

    def empty(self, dtype: torch.dtype, shape: tuple[int, ...], name: str) -> torch.Tensor:
        """Return a contiguous tensor for a kernel to write."""
        return torch.empty(shape, dtype=dtype, device=self._device)


@dataclass(frozen=True, slots=True)
class Operands:
    """A, B, the output and the bias of one problem; bmm puts the batch dimension first."""

    a: torch.Tensor
    """Left operand, m×k, with the problem's dtype and layout."""
    b: torch.Tensor
    """Right operand, k×n, with the problem's dtype and layout."""
    out: torch.Tensor
    """Output of the kernel, m×n, row-major."""
    bias: torch.Tensor | None = None
    """Summand of addmm with the output's dtype: n elements, or m×n row-major."""

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Arguments of a kernel's call, in order."""
        return (self.a, self.b, self.out) if self.bias is None else (self.a, self.b, self.out, self.bias)

    @property
    def nbytes(self) -> int:
        """Device memory of all tensors, in bytes."""
        return sum(tensor.nbytes for tensor in self.arguments)


def make_operands(
    problem: Problem, device: torch.device, number: int = 0, source: TensorSource | None = None
) -> Operands:
    """Return standard-normal A and B and a bias, with an uninitialised output; kernels run faster on zeros.

    Integers are 32 times normal and rounded, or less if fp16 would not hold their sums.

    Args:
        problem: sizes, dtypes and layouts.
        device: device of the tensors.
        number: number of the operand set; each set has values and memory of its own.
        source: source of A, B and the output. The default gives each tensor memory of its own, with values that depend
            on problem and number alone.

    Raises:
        torch.OutOfMemoryError: the tensors do not fit.
    """
    name = f"{problem.name}#{number}" if number else problem.name
    source, scale = source or TensorSource(device), _integer_scale(problem)
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
    """Return a normal bias, large enough that the check catches a kernel which leaves it out."""
    shape = (problem.n,) if problem.bias is Bias.VECTOR else (problem.m, problem.n)
    values = TensorSource(device).normal(Values(torch.float32), shape, name)
    values *= _BIAS_SHARE * math.sqrt(problem.k)
    return (values * integer_scale**2 if problem.a_dtype.is_integer else values).to(_dtype(problem.out_dtype))


def _dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found
