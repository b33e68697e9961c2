"""GEMM workloads: operands with normal values, and their product in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from gemmtune.engine.platform.vendor_gemm import reference_problem
from gemmtune.engine.records.problem import Bias, DType, Layout, Op, Problem
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind

if TYPE_CHECKING:
    import torch

__all__ = ["Gemm", "GemmOperands"]

_INTEGER_SCALE = 32.0  # standard deviation of integer operands: 1 value in 16,000 is cut off at 127
_LARGEST_FP16 = 65504.0
_BIAS_SHARE = 0.25  # standard deviation of a bias, as a share of the product's
_LARGEST_SUM = 6.0  # largest sum to expect in a large output, in standard deviations

_TOLERANCE = {DType.BF16: 8e-3, DType.FP16: 1e-3, DType.FP32: 1e-4, DType.INT32: 1e-6}
"""Largest ‖out − reference‖ / ‖reference‖ that rounding alone may cause, by the output's dtype.

Rounding the output to a grid of 2⁻ᵖ costs 2⁻ᵖ/√12 to 2⁻ᵖ/√3 in this norm. The bounds leave a factor of about four.
"""
_TF32_TOLERANCE = 2e-3
"""Tolerance if both operands are rounded to 10 bits of mantissa."""
_SHORT_ACCUMULATOR_TOLERANCE = 1.5e-4
"""Tolerance of an accumulator shorter than fp32, to be multiplied by the root of k.

The bound leaves a factor of four over simulated tensor cores that round sums to fp16 or cut terms at 14 bits, as Hopper
does with 8-bit floats (DeepSeek-V3 Technical Report, section 3.3.2).
"""


@dataclass(frozen=True, slots=True)
class GemmOperands:
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
    def outputs(self) -> tuple[torch.Tensor, ...]:
        """Output of the kernel."""
        return (self.out,)


class Gemm(WorkloadKind[Problem]):
    """General matrix products, with an optional bias and a dense batch."""

    sizes: ClassVar[tuple[str, ...]] = ("m", "n", "k", "batch")
    needed: ClassVar[tuple[str, ...]] = ("m", "n", "k")
    listed: ClassVar[str] = "m"

    def parse(self, text: str) -> Problem:
        """Return the problem of its text; see `Problem.parse`."""
        return Problem.parse(text)

    def from_fields(self, fields: Mapping[str, str]) -> Problem:
        """Return the problem of text fields; see `Problem.from_fields`."""
        return Problem.from_fields(fields)

    def operands(self, workload: Problem, source: TensorSource, number: int) -> GemmOperands:
        """Return standard-normal A and B and a bias, with an uninitialised output; kernels run faster on zeros.

        Integers are 32 times normal and rounded, or less if fp16 would not hold their sums.
        """
        name = f"{workload.name}#{number}" if number else workload.name
        scale = _integer_scale(workload)
        batch = (workload.batch,) if workload.op is Op.BMM else ()

        def operand(which: str, rows: int, columns: int, dtype: DType, layout: Layout) -> torch.Tensor:
            of_type = scale if dtype.is_integer else 1.0
            if layout is Layout.N:
                return source.normal(_dtype(dtype), (*batch, rows, columns), f"{name} {which}", of_type)
            return source.normal(_dtype(dtype), (*batch, columns, rows), f"{name} {which}", of_type).mT

        return GemmOperands(
            a=operand("a", workload.m, workload.k, workload.a_dtype, workload.a_layout),
            b=operand("b", workload.k, workload.n, workload.b_dtype, workload.b_layout),
            out=source.empty(_dtype(workload.out_dtype), (*batch, workload.m, workload.n), f"{name} out"),
            bias=None if workload.bias is Bias.NONE else _bias(workload, source, f"{name} bias", scale),
        )

    def expected(self, workload: Problem, operands: Operands) -> tuple[Expected, ...]:
        """Return the product in float64, computed by blocks of rows, so that float64 copies stay small."""
        import torch

        assert isinstance(operands, GemmOperands)
        b, bias = operands.b.double(), operands.bias
        rows = max(1, 2**27 // (workload.batch * workload.n))  # at most 1 GiB of float64 output at once
        blocks = []
        for i in range(0, workload.m, rows):
            block = operands.a[..., i : i + rows, :].double() @ b
            if bias is not None:
                block += bias if bias.dim() == 1 else bias[i : i + rows]
            blocks.append(block.float())
        # Inputs are standard normal, so an element has variance k.
        return (Expected(torch.cat(blocks, dim=-2), _tolerance(workload), workload.k**0.5),)

    def timed_beside(self, workload: Problem) -> Problem:
        """Return the problem itself if the vendor library runs it, else its bf16 product."""
        return reference_problem(workload)


def _integer_scale(problem: Problem) -> float:
    if problem.out_dtype is not DType.FP16:
        return _INTEGER_SCALE
    return min(_INTEGER_SCALE, math.sqrt(_LARGEST_FP16 / _LARGEST_SUM / math.sqrt(problem.k)))


def _bias(problem: Problem, source: TensorSource, name: str, integer_scale: float) -> torch.Tensor:
    """Return a normal bias, large enough that the check catches a kernel which leaves it out."""
    import torch

    shape = (problem.n,) if problem.bias is Bias.VECTOR else (problem.m, problem.n)
    values = source.own(torch.float32, shape, name)
    values *= _BIAS_SHARE * math.sqrt(problem.k)
    return (values * integer_scale**2 if problem.a_dtype.is_integer else values).to(_dtype(problem.out_dtype))


def _tolerance(problem: Problem) -> float:
    if problem.allow_tf32:
        return _TF32_TOLERANCE
    of_output = _TOLERANCE[problem.out_dtype]
    eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
    if eight_bit_float or problem.acc_dtype is DType.FP16:
        return max(of_output, _SHORT_ACCUMULATOR_TOLERANCE * math.sqrt(problem.k))
    return of_output


def _dtype(dtype: DType) -> torch.dtype:
    import torch

    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found
