"""Check kernel outputs against the right results. Imports torch."""

from dataclasses import dataclass

import torch

from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.workload import Operands

_WORST_ELEMENT = 6.0
"""Largest single error, in tolerances times the reference's root mean square; it finds a single wrong tile."""


@dataclass(frozen=True, slots=True)
class OutputCheck:
    """Comparison of the outputs of one launch with the right results."""

    error_norm: float
    """‖out − reference‖ / ‖reference‖, the largest of all outputs; NaN if an element is NaN, as an unwritten one may
    be."""
    reason: str
    """Description of the error, as text; empty if every output is right."""


def poison(out: torch.Tensor) -> None:
    """Fill an output with a value that no right result holds.

    The value is NaN, or for integers the least one, which no sum over k below 2¹⁷ can reach.
    """
    out.fill_(float("nan") if out.is_floating_point() else torch.iinfo(out.dtype).min)


class ReferenceResult:
    """Right results for one operand set, kept in float32."""

    def __init__(self, workload: Workload, operands: Operands) -> None:
        """Compute what the workload returns for these operands."""
        self._expected = kind_of(workload.kind).expected(workload, operands)
        norms = [(float(each.values.norm()), each.values.numel()) for each in self._expected]
        # The floor helps outputs of few elements: all may be near 0, where rounding would be a large relative error.
        floors = [each.least_rms * elements**0.5 for each, (_, elements) in zip(self._expected, norms, strict=True)]
        self._norms = [max(norm, floor) or 1.0 for (norm, _), floor in zip(norms, floors, strict=True)]
        self._rms = [norm / elements**0.5 for norm, (_, elements) in zip(self._norms, norms, strict=True)]

    @property
    def nbytes(self) -> int:
        """Device memory of the results, in bytes."""
        return sum(each.values.nbytes for each in self._expected)

    def check(self, *outputs: torch.Tensor) -> OutputCheck:
        """Check outputs that were poisoned before the launch."""
        return self.evaluate(self.norms(*outputs), *outputs)

    def norms(self, *outputs: torch.Tensor) -> torch.Tensor:
        """Enqueue and return ‖out − reference‖ and the largest absolute difference beyond `of_each`, without waiting.

        The shape is (outputs, 2).
        """
        rows = []
        for out, expected in zip(outputs, self._expected, strict=True):
            whole = out.float() if out.itemsize == 1 else out  # torch subtracts no 8-bit floats
            difference = whole - expected.values  # float32, whatever the output's type
            rows.append(torch.linalg.vector_norm(difference))
            if expected.of_each:
                difference = difference.abs() - expected.of_each * expected.values.abs()
            rows.append(
                torch.linalg.vector_norm(difference, ord=float("inf")) if not expected.of_each else difference.max()
            )
        return torch.stack(rows).view(len(outputs), 2)

    def evaluate(self, norms: torch.Tensor, *outputs: torch.Tensor) -> OutputCheck:
        """Wait for `norms`, which were computed from `outputs`, and return the check of these outputs."""
        rows = zip(norms.tolist(), outputs, strict=True)
        checks = [self._evaluate(i, norm, largest, out) for i, ((norm, largest), out) in enumerate(rows)]
        wrong = next((check for check in checks if check.reason), None)
        return wrong or max(checks, key=lambda check: check.error_norm)

    def _evaluate(self, number: int, norm: float, largest: float, out: torch.Tensor) -> OutputCheck:
        tolerance = self._expected[number].tolerance
        error_norm, worst = norm / self._norms[number], largest / self._rms[number]
        reason, worst_bound = "", _WORST_ELEMENT * tolerance
        if not error_norm <= tolerance:
            reason = _missing(out) or f"error norm {error_norm:.2e} > {tolerance:.0e}"
        elif worst > worst_bound:
            reason = f"an element is off by {worst:.2e} of the output's root mean square > {worst_bound:.1e}"
        if reason and len(self._expected) > 1:
            reason = f"output {number}: {reason}"
        return OutputCheck(error_norm, reason)


def _missing(out: torch.Tensor) -> str:
    """Return how many elements still hold the poison, as text; empty if none does."""
    floats = out.is_floating_point()
    missing = int((out.isnan() if floats else out == torch.iinfo(out.dtype).min).sum())
    what = "are NaN or were not written" if floats else "were not written"
    return f"{missing} of {out.numel()} output elements {what}" if missing else ""
