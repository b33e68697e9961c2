"""Contiguous rows of a GEMM's operands, whose length decides how a kernel may copy them."""

from __future__ import annotations

from typing import NamedTuple

from gemmtune.engine.records.problem import DType, Layout, Problem

__all__ = ["OperandRow", "operand_rows"]


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
