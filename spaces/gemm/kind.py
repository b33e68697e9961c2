"""GEMM workloads: operands with normal values, and their product in float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue
from gemmtune.engine.records.epilogue.terms import Call, Operand, OperandShape, Term
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.scaling import leading_factors
from gemmtune.engine.records.gemm.terms import Accumulation, Bias, DType, Layout
from gemmtune.engine.seams.workload import Expected, Operands, TensorSource, WorkloadKind
from gemmtune.engine.toolchain.vendor_gemm import product_dtype, supports

if TYPE_CHECKING:
    import torch

_INTEGER_SCALE = 32.0  # standard deviation of integer operands: 1 value in 16,000 is cut off at 127
_LARGEST_FLOAT8 = {DType.E4M3: 448.0, DType.E5M2: 57344.0}
_QUANTISED_SHARE = 0.25  # standard deviation of values that have scales, as a share of the greatest, which few exceed
_PROMOTED = 256  # terms, at most, that exact kernels sum with 14 bits before they add them to a sum in fp32
_SCALE_SPREAD = 0.25  # standard deviation of a scale's natural logarithm
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

_ROUNDINGS_OF_EPILOGUE = 2
"""Roundings before an output behind an epilogue: that of the product, and that of the output."""
_LEAST_RMS_OF_EPILOGUE = 1e-2
"""Root mean square that an epilogue's output counts with at least; the product's is near 1."""
_WITH_ROWS = (OperandShape.MATRIX, OperandShape.COLUMN)
"""Shapes of an epilogue's operands that have a row per row of the output."""
_OF_POSITIVE = ("sqrt", "rsqrt", "log", "log2", "log1p", "pow")
"""Operations whose first argument has to be positive, for operands of the epilogue that they read."""


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """A, B, outputs, bias and the epilogue's operands of one problem; bmm puts the batch dimension first."""

    a: torch.Tensor
    """Left operand, m×k, with the problem's dtype, layout and strides."""
    b: torch.Tensor
    """Right operand, k×n, with the problem's dtype, layout and strides."""
    outputs: tuple[torch.Tensor, ...]
    """Outputs of the kernel, m×n, row-major."""
    bias: torch.Tensor | None = None
    """Summand of addmm or baddbmm with the output's dtype, of `Problem.bias_shape`, row-major."""
    further: tuple[torch.Tensor, ...] = ()
    """Operands of the epilogue in the order of its text, each broadcast to the output by its shape."""

    @property
    def out(self) -> torch.Tensor:
        """First output of the kernel."""
        return self.outputs[0]

    @property
    def arguments(self) -> tuple[torch.Tensor, ...]:
        """Arguments of a kernel's call, in the order of `Problem.argument_names`."""
        bias = () if self.bias is None else (self.bias,)
        return (self.a, self.b, *self.outputs, *bias, *self.further)


class Gemm(WorkloadKind[Problem]):
    """General matrix products, with an optional bias and batch."""

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
        """Return standard-normal A and B and a bias, with uninitialised outputs; kernels run faster on zeros.

        Integers are 32 times normal and rounded, or less if fp16 would not hold their sums. Operands of 8 bits with
        scales are normal values, quantised to the whole range of their type, and the scales give them back. Before an
        epilogue B is smaller by about the root of k, or its scale. So the product has a variance near 1, as activations
        have in a model.
        """
        name = f"{workload.name}#{number}" if number else workload.name
        scale, spreads = _integer_scale(workload), spreads_of(workload)
        batch = (workload.batch,) if workload.op.is_batched else ()

        def operand(which: str, rows: int, columns: int, dtype: DType, layout: Layout) -> torch.Tensor:
            of_type, strides = spreads[which], workload.strides_of(which, workload.m)
            sizes = (*batch, rows, columns)
            if workload.is_strided:
                whole = source.normal(_dtype(dtype), (workload.reach(which),), f"{name} {which}", of_type)
                return whole.as_strided(sizes, strides, whole.storage_offset())
            if layout is Layout.N:
                return source.normal(_dtype(dtype), sizes, f"{name} {which}", of_type)
            return source.normal(_dtype(dtype), (*batch, columns, rows), f"{name} {which}", of_type).mT

        return GemmOperands(
            a=operand("a", workload.m, workload.k, workload.a_dtype, workload.a_layout),
            b=operand("b", workload.k, workload.n, workload.b_dtype, workload.b_layout),
            outputs=tuple(
                source.empty(_dtype(dtype), (*batch, workload.m, workload.n), f"{name} out{number or ''}")
                for number, dtype in enumerate(workload.stored_dtypes)
            ),
            bias=None if workload.bias is Bias.NONE else _bias(workload, source, f"{name} bias", scale),
            further=tuple(
                _further(workload, each, source, f"{name} {each.name}") for each in workload.epilogue.operands
            ),
        )

    def expected(self, workload: Problem, operands: Operands) -> tuple[Expected, ...]:
        """Return product and epilogue in float64, computed by blocks of rows, so that float64 copies stay small."""
        import torch

        from gemmtune.engine.records.epilogue.chain import computed_by_torch

        assert isinstance(operands, GemmOperands)
        b, bias = operands.b.double(), operands.bias
        rows = max(1, 2**27 // (workload.batch * workload.n))  # at most 1 GiB of float64 output at once
        blocks: list[list[torch.Tensor]] = [[] for _ in operands.outputs]
        for i in range(0, workload.m, rows):
            product = operands.a[..., i : i + rows, :].double() @ b
            if bias is not None:
                part = bias[..., i : i + rows, :] if workload.bias.has_rows else bias
                product = workload.alpha * product + (workload.beta * part.double() if workload.beta else 0)
            gates = zip(workload.epilogue.operands, operands.further, strict=True)
            whole = [each.repeat_interleave(its.block, 0) if its.block else each for its, each in gates]
            further = [each[..., i : i + product.shape[-2], :] if each.shape[-2] > 1 else each for each in whole]
            for block, values in zip(blocks, computed_by_torch(workload.epilogue, product, further), strict=True):
                block.append(values.float())
        # Inputs are standard normal, so an element has variance k times alpha², or with an epilogue about 1.
        least = _LEAST_RMS_OF_EPILOGUE if workload.epilogue else abs(workload.alpha) * workload.k**0.5
        tolerances = [tolerance_of(workload, dtype) for dtype in workload.stored_dtypes]
        # Elements of a product are alike in size; those that an epilogue multiplies are not.
        return tuple(
            Expected(torch.cat(block, dim=-2), tolerance, tolerance if workload.epilogue else 0.0, least)
            for block, tolerance in zip(blocks, tolerances, strict=True)
        )

    def rows_of(self, workload: Problem, operands: Operands) -> tuple[torch.Tensor, ...]:
        """Return A, a bias that has rows, and the epilogue's operands that do."""
        assert isinstance(operands, GemmOperands)
        further = zip(workload.epilogue.operands, operands.further, strict=True)
        return (
            operands.a,
            *([operands.bias] if operands.bias is not None and workload.bias.has_rows else []),
            *(tensor for each, tensor in further if each.shape in _WITH_ROWS),
        )

    def timed_beside(self, workload: Problem) -> Problem:
        """Return the problem itself if the vendor library runs it, else its bf16 product."""
        if supports(workload):
            plain = replace(workload, epilogue=NO_EPILOGUE, out_dtype=product_dtype(workload))
            return replace(plain, accumulation=Accumulation.FAST) if workload.epilogue else workload
        a_layout, b_layout, weight = workload.a_layout, workload.b_layout, workload.weight
        return Problem(workload.m, workload.n, workload.k, a_layout=a_layout, b_layout=b_layout, weight=weight)


def _integer_scale(problem: Problem) -> float:
    if problem.out_dtype is not DType.FP16:
        return _INTEGER_SCALE
    return min(_INTEGER_SCALE, math.sqrt(_LARGEST_FP16 / _LARGEST_SUM / math.sqrt(problem.k)))


def _bias(problem: Problem, source: TensorSource, name: str, integer_scale: float) -> torch.Tensor:
    """Return a normal bias, large enough that the check catches a kernel which leaves it or its factor out.

    With a beta of 0 it is NaN, so that the check catches a kernel which takes anything of it.
    """
    import torch

    values = source.own(torch.float32, problem.bias_shape, name)
    share = abs(problem.alpha / problem.beta) if problem.beta else math.nan
    values *= _BIAS_SHARE * math.sqrt(problem.k) * share
    return (values * integer_scale**2 if problem.a_dtype.is_integer else values).to(_dtype(problem.out_dtype))


def spreads_of(problem: Problem) -> dict[str, float]:
    """Return the standard deviations of A and B, and the usual size of each scale, by the names of the operands."""
    found = {}
    shrunk = 2.0 ** -round(math.log2(problem.k) / 2) if problem.epilogue else 1.0  # near 1/√k for B before an epilogue
    for name, dtype, plain in (("a", problem.a_dtype, 1.0), ("b", problem.b_dtype, shrunk)):
        floats = _quantised(problem, dtype) if dtype.is_float8 else plain
        found[name] = _integer_scale(problem) if dtype.is_integer else floats
    return found | {operand.name: usual for operand, usual in _magnitudes(problem).items()}


def _quantised(problem: Problem, dtype: DType) -> float:
    """Return the standard deviation of 8-bit floats: 1, or what uses the range of the type if there are scales."""
    return _QUANTISED_SHARE * _LARGEST_FLOAT8[dtype] if leading_factors(problem.epilogue) else 1.0


def _magnitudes(problem: Problem) -> dict[Operand, float]:
    """Return the usual size of each scale of 8-bit operands: all together give the product a variance near 1."""
    found = leading_factors(problem.epilogue) if problem.a_dtype.itemsize == 1 else ()
    a, b = (
        (
            _integer_scale(problem) if dtype.is_integer else _quantised(problem, dtype)
            for dtype in (problem.a_dtype, problem.b_dtype)
        )
        if found
        else (1.0, 1.0)
    )
    whole = 1 / (b * math.sqrt(problem.k))
    return dict(zip(found, (1 / a, whole) if len(found) > 1 else (whole / a,), strict=False))


def _further(problem: Problem, operand: Operand, source: TensorSource, name: str) -> torch.Tensor:
    """Return a normal operand of an epilogue; half of a condition's values are true; scales and roots are positive."""
    import torch

    shape = problem.shape_of(operand.shape, operand.block)
    if operand.transposed:
        shape = (*shape[:-2], shape[-1], shape[-2])
    if operand.dtype == "bool":
        found = source.own(torch.float32, shape, name) > 0
    elif usual := _magnitudes(problem).get(operand):
        found = scales(source, shape, name, usual).to(_dtype(DType(operand.dtype or problem.out_dtype)))
    elif operand in positive_of(problem.epilogue):
        found = source.own(torch.float32, shape, name).abs().to(_dtype(DType(operand.dtype or problem.out_dtype)))
    else:
        found = source.normal(_dtype(DType(operand.dtype or problem.out_dtype)), shape, name)
    return found.mT if operand.transposed else found


def scales(source: TensorSource, shape: tuple[int, ...], name: str, usual: float) -> torch.Tensor:
    """Return positive scales of 8-bit operands in fp32, around their usual size."""
    import torch

    return (_SCALE_SPREAD * source.own(torch.float32, shape, name)).exp() * usual


def positive_of(epilogue: Epilogue) -> set[Term]:
    """Return the operands that are read as an argument of a root, a logarithm or a power."""
    waiting, found = [output.term for output in epilogue.outputs], set()
    while waiting:
        term = waiting.pop()
        if isinstance(term, Call):
            waiting += term.arguments
            if term.op in _OF_POSITIVE:
                found.add(term.arguments[0])
    return found


def tolerance_of(problem: Problem, stored: DType) -> float:
    """Return the largest relative error of an output of type `stored`; one rounding more behind an epilogue."""
    if problem.unscaled_epilogue:
        return _ROUNDINGS_OF_EPILOGUE * max(_tolerance_of_product(problem), _TOLERANCE[stored])
    return _tolerance_of_product(problem)


def _tolerance_of_product(problem: Problem) -> float:
    if problem.allow_tf32:
        return _TF32_TOLERANCE
    of_output = _TOLERANCE[problem.out_dtype]
    if problem.a_dtype.is_float8 or problem.acc_dtype is DType.FP16:
        short = problem.k if problem.accumulation is Accumulation.FAST else min(problem.k, _PROMOTED)
        return max(of_output, _SHORT_ACCUMULATOR_TOLERANCE * math.sqrt(short))
    return of_output


def _dtype(dtype: DType) -> torch.dtype:
    import torch

    found: torch.dtype = getattr(torch, dtype.torch_name)
    return found
