"""Check kernel outputs against a product in float64. Imports torch."""

import math
from dataclasses import dataclass

import torch

from gemmtune.engine.measure.operands.operands import Operands
from gemmtune.engine.records.problem import DType, Problem

__all__ = ["OutputCheck", "ReferenceResult", "poison"]

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
_WORST_ELEMENT = 6.0
"""Largest single error, in tolerances times the reference's root mean square; it finds a single wrong tile."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Comparison of one output with the reference result."""

    error_norm: float
    """‖out − reference‖ / ‖reference‖; NaN if an element is NaN, as an unwritten one may be."""
    reason: str
    """Description of the error, as text; empty if the output is right."""


def poison(out: torch.Tensor) -> None:
    """Fill an output with a value that no right result holds.

    The value is NaN, or for integers the least one, which no sum over k below 2¹⁷ can reach.
    """
    out.fill_(float("nan") if out.is_floating_point() else torch.iinfo(out.dtype).min)


class ReferenceResult:
    """Result for one operand set, computed in float64 and kept in float32."""

    def __init__(self, problem: Problem, operands: Operands) -> None:
        """Compute the result by blocks of rows, so that float64 copies stay small."""
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
        # Inputs are standard normal, so an element has variance k. The floor helps outputs of few elements: all may be
        # near 0, where rounding would be a large relative error.
        elements = self._expected.numel()
        self._norm = max(float(self._expected.norm()), (elements * problem.k) ** 0.5)
        self._rms = self._norm / elements**0.5

    @property
    def nbytes(self) -> int:
        """Device memory of the result, in bytes."""
        return self._expected.nbytes

    def check(self, out: torch.Tensor) -> OutputCheck:
        """Check an output that was poisoned before the launch."""
        return self.evaluate(self.norms(out), out)

    def norms(self, out: torch.Tensor) -> torch.Tensor:
        """Enqueue and return ‖out − reference‖ and the largest absolute difference, shape (2,), without waiting."""
        difference = out - self._expected  # float32, whatever the output's type
        return torch.stack(
            [torch.linalg.vector_norm(difference), torch.linalg.vector_norm(difference, ord=float("inf"))]
        )

    def evaluate(self, norms: torch.Tensor, out: torch.Tensor) -> OutputCheck:
        """Wait for `norms`, which were computed from `out`, and return the check of that output."""
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
    """Return how many elements still hold the poison, as text; empty if none does."""
    floats = out.is_floating_point()
    missing = int((out.isnan() if floats else out == torch.iinfo(out.dtype).min).sum())
    what = "are NaN or were not written" if floats else "were not written"
    return f"{missing} of {out.numel()} output elements {what}" if missing else ""
