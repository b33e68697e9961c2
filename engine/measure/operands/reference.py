"""Whether an output is right, against a product in float64. Imports torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from gemmtune.engine.measure.operands.operands import Operands
from gemmtune.engine.records.problem import DType, Problem

__all__ = ["OutputCheck", "ReferenceResult", "poison"]

# ‖out − reference‖ / ‖reference‖ that rounding alone may cause. Rounding the output to a 2⁻ᵖ grid costs 2⁻ᵖ/√12 to
# 2⁻ᵖ/√3 in this norm; the bounds leave a factor of about four, and fp32 accumulation over any k stays far below.
_TOLERANCE = {DType.BF16: 8e-3, DType.FP16: 1e-3, DType.FP32: 1e-4, DType.INT32: 1e-6}
_TF32_TOLERANCE = 2e-3  # both operands rounded to 10 bits of mantissa
# The same of an accumulator that is short of fp32, for each root of k: a simulated tensor core that rounds its sums to
# fp16 after 16 terms costs 3.7e-5, one that cuts what it adds at 14 bits, as Hopper does with 8-bit floats (DeepSeek-V3
# Technical Report, section 3.3.2), 2.7e-5 (standard-normal operands, k from 512 to 28,672). Again a factor of four.
_SHORT_ACCUMULATOR_TOLERANCE = 1.5e-4
# The largest single error, in units of the reference's root mean square: a normal tail of 5 to 6 sigma. It finds the
# one wrong tile that drowns in the norm of a large output.
_WORST_ELEMENT = 6.0


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """One output beside the reference."""

    error_norm: float
    """‖out − reference‖ / ‖reference‖; NaN where an element is NaN, as one that was not written may be."""
    reason: str
    """What is wrong; empty when the output is right."""


def poison(out: torch.Tensor) -> None:
    """Fill an output with what no right result holds: NaN, or of integers the least, which k below 2¹⁷ cannot reach."""
    out.fill_(float("nan") if out.is_floating_point() else torch.iinfo(out.dtype).min)


class ReferenceResult:
    """The result of one problem's operands in float64, kept in float32."""

    def __init__(self, problem: Problem, operands: Operands) -> None:
        """Compute it, row block by row block, so that float64 copies stay small."""
        self._tolerance = _tolerance(problem)
        b, bias = operands.b.double(), operands.bias
        rows = max(1, 2**27 // (problem.batch * problem.n))  # at most 1 GiB of float64 output at once
        blocks = []
        for i in range(0, problem.m, rows):
            block = operands.a[..., i : i + rows, :].double() @ b
            if bias is not None:
                block += bias if bias.dim() == 1 else bias[i : i + rows]
            blocks.append(block.float())
        self._expected = torch.cat(blocks, dim=-2)
        # Inputs are standard normal, so an element has variance k; the floor keeps outputs of a few elements, which
        # may all be near 0, from turning rounding into a large relative error.
        elements = self._expected.numel()
        self._norm = max(float(self._expected.norm()), (elements * problem.k) ** 0.5)
        self._rms = self._norm / elements**0.5

    @property
    def nbytes(self) -> int:
        """Device memory it holds."""
        return self._expected.nbytes

    def check(self, out: torch.Tensor) -> OutputCheck:
        """Compare an output that was poisoned before the launch."""
        return self.evaluate(self.norms(out), out)

    def norms(self, out: torch.Tensor) -> torch.Tensor:
        """‖out − reference‖ and the largest absolute difference, as a tensor of two; nothing is waited for."""
        difference = out - self._expected  # float32, whatever the output's type
        return torch.stack(
            [torch.linalg.vector_norm(difference), torch.linalg.vector_norm(difference, ord=float("inf"))]
        )

    def evaluate(self, norms: torch.Tensor, out: torch.Tensor) -> OutputCheck:
        """What `norms` says of the output they were computed from."""
        norm, largest = norms.tolist()
        error_norm, worst = norm / self._norm, largest / self._rms
        reason, worst_bound = "", _WORST_ELEMENT * self._tolerance
        if not error_norm <= self._tolerance:
            reason = _missing(out) or f"error norm {error_norm:.2e} > {self._tolerance:.0e}"
        elif worst > worst_bound:
            reason = f"an element is off by {worst:.2e} of the output's root mean square > {worst_bound:.1e}"
        return OutputCheck(error_norm, reason)


def _tolerance(problem: Problem) -> float:
    if problem.allow_tf32:
        return _TF32_TOLERANCE
    of_output = _TOLERANCE[problem.out_dtype]
    eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
    if eight_bit_float or problem.acc_dtype is DType.FP16:
        return max(of_output, _SHORT_ACCUMULATOR_TOLERANCE * math.sqrt(problem.k))
    return of_output


def _missing(out: torch.Tensor) -> str:
    """How many elements are still poison; empty where none is."""
    floats = out.is_floating_point()
    missing = int((out.isnan() if floats else out == torch.iinfo(out.dtype).min).sum())
    what = "are NaN or were not written" if floats else "were not written"
    return f"{missing} of {out.numel()} output elements {what}" if missing else ""
