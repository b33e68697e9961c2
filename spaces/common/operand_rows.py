"""Contiguous rows of a GEMM's operands, whose length decides how a kernel may copy them."""

from collections.abc import Sequence
from typing import NamedTuple

from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Layout
from gemmtune.engine.records.verdict import Verdict


class OperandRow(NamedTuple):
    """Elements of an operand that lie next to each other in memory."""

    length: int
    """Number of elements per row."""
    dtype: DType
    """Type of each element."""

    @property
    def nbytes(self) -> int:
        """Length of the row in bytes."""
        return self.length * self.dtype.itemsize


def operand_rows(problem: Problem) -> dict[str, OperandRow]:
    """Return the rows of `A`, `B` and `out`, by name; a transposed operand is contiguous along its other dimension."""
    return {
        "A": OperandRow(problem.k if problem.a_layout is Layout.N else problem.m, problem.a_dtype),
        "B": OperandRow(problem.n if problem.b_layout is Layout.N else problem.k, problem.b_dtype),
        "out": OperandRow(problem.n, problem.out_dtype),
    }


def aligned(problem: Problem, step_bytes: int, copy: str, names: Sequence[str] = ("A", "B", "out")) -> Verdict:
    """Return whether the rows of the named operands are multiples of the bytes that a `copy`, such as TMA, moves."""
    for name in names:
        nbytes = operand_rows(problem)[name].nbytes
        if nbytes % step_bytes:
            reason = f"rows of {name} of {nbytes} B are no multiple of the {step_bytes} B that {copy} needs"
            return Verdict.no("alignment", reason)
    return Verdict.yes()
