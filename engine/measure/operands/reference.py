"""Check kernel outputs against the right results. Imports torch."""

from dataclasses import dataclass, replace

import torch

from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of
from gemmtune.engine.seams.workload import Operands

_WORST_ELEMENT = 6.0
"""Largest single error, in tolerances times the reference's root mean square; it finds a single wrong tile."""
_BOOL_POISON = 2


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

    The value is NaN, for integers the least one, which no sum over k below 2¹⁷ can reach, and for bool a byte of 2.
    """
    _bytes(out).fill_(_poison_of(out))


def _poison_of(out: torch.Tensor) -> float | int:
    if out.is_floating_point() or out.is_complex():
        return float("nan")
    return _BOOL_POISON if out.dtype is torch.bool else torch.iinfo(out.dtype).min


def _bytes(out: torch.Tensor) -> torch.Tensor:
    """Return a tensor, with the bytes of a bool tensor, which may hold more than true and false."""
    return out.view(torch.uint8) if out.dtype is torch.bool else out


def _real(values: torch.Tensor) -> torch.Tensor:
    """Return values that torch subtracts: complex numbers as pairs, 8-bit values in float32, others as they are."""
    if values.is_complex():
        return torch.view_as_real(values)
    return _bytes(values).float() if values.itemsize == 1 else values


def _floats(values: torch.Tensor) -> torch.Tensor:
    return values if values.is_floating_point() else values.double()


class ReferenceResult:
    """Right results for one operand set, kept in float32, or as the integers that they are."""

    def __init__(self, workload: Workload, operands: Operands) -> None:
        """Compute what the workload returns for these operands."""
        expected = kind_of(workload.kind).expected(workload, operands)
        self._expected = tuple(replace(each, values=_real(each.values)) for each in expected)
        self._infinite = [bool(each.values.isinf().any()) for each in self._expected]
        finite = (
            each.values.nan_to_num(float("nan"), 0.0, 0.0) if infinite else each.values
            for each, infinite in zip(self._expected, self._infinite, strict=True)
        )
        norms = [(float(_floats(each).norm()), each.numel()) for each in finite]
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
        """Enqueue and return ‖out − reference‖ and the largest difference beyond each element's own share.

        Nothing is waited for. The shape is (outputs, 2).
        """
        rows = []
        for out, expected, infinite in zip(outputs, self._expected, self._infinite, strict=True):
            whole, right = _real(out), expected.values
            if infinite:  # the difference of equal infinities is NaN
                whole = torch.where(whole == right, 0.0, whole)
                right = torch.where(_real(out) == right, 0.0, right)
            difference = _floats(whole - right)  # float32, unless the output is of integers or float64
            rows.append(torch.linalg.vector_norm(difference).float())
            if expected.of_row:
                difference = difference.abs() - expected.of_row * right.square().mean(-1, keepdim=True).sqrt()
            elif expected.of_each:
                difference = difference.abs() - expected.of_each * right.abs()
            beyond = expected.of_row or expected.of_each
            rows.append(difference.max() if beyond else torch.linalg.vector_norm(difference, ord=float("inf")))
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
    floats = out.is_floating_point() or out.is_complex()
    missing = int((out.isnan() if floats else _bytes(out) == _poison_of(out)).sum())
    what = "are NaN or were not written" if floats else "were not written"
    return f"{missing} of {out.numel()} output elements {what}" if missing else ""
