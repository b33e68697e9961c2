"""Contiguous rows of a GEMM's operands, whose length and distance decide how a kernel may copy them."""

import math
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
    """Return the rows of `A`, `B` and `out`, by name; a transposed operand is contiguous along its other dimension.

    Rows of a view are as long as the largest divisor of their length and of its strides: they are aligned like those.
    """
    a = problem.k if problem.a_layout is Layout.N else problem.m
    b = problem.n if problem.b_layout is Layout.N else problem.k
    return {
        "A": OperandRow(math.gcd(a, problem.lda or 0, problem.batch_stride_a or 0), problem.a_dtype),
        "B": OperandRow(math.gcd(b, problem.ldb or 0, problem.batch_stride_b or 0), problem.b_dtype),
        "out": OperandRow(problem.n, problem.out_dtype),
    }


def usual(problem: Problem, space: str, *, takes_views: bool) -> Verdict:
    """Return whether a kernel of a space without scalars computes the problem, on views only if it takes them."""
    if (problem.alpha, problem.beta) != (1, 1):
        scalars = f"alpha={problem.alpha:g} and beta={problem.beta:g}"
        return Verdict.no("scalars", f"{space} adds the bias as it is, not with {scalars}")
    if problem.is_strided and not takes_views:
        return Verdict.no("strides", f"{space} is compiled for dense operands, not for {':'.join(problem.stated)}")
    return Verdict.yes()


def aligned(problem: Problem, step_bytes: int, copy: str, names: Sequence[str] = ("A", "B", "out")) -> Verdict:
    """Return whether the rows of the named operands are multiples of the bytes that a `copy`, such as TMA, moves."""
    for name in names:
        nbytes = operand_rows(problem)[name].nbytes
        if nbytes % step_bytes:
            reason = f"rows of {name} of {nbytes} B are no multiple of the {step_bytes} B that {copy} needs"
            return Verdict.no("alignment", reason)
    return Verdict.yes()
