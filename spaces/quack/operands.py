"""Tensors that QuACK's kernel reads in its epilogue: the bias of an addmm, and an epilogue's operands."""

from dataclasses import replace
from typing import NamedTuple

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE
from gemmtune.engine.records.epilogue.terms import Operand, OperandShape
from gemmtune.engine.records.problem import Bias, Op, Problem

__all__ = ["EpilogueTensor", "epilogue_tensors", "is_plain", "product_of"]


class EpilogueTensor(NamedTuple):
    """Tensor that an epilogue reads."""

    name: str
    """Name among the arguments of the problem."""
    shape: OperandShape
    """Shape, which says how the tensor is broadcast."""
    dtype: str
    """Element type by its short name."""
    transposed: bool = False
    """Whether a matrix has its columns in memory one after another."""
    operand: Operand | None = None
    """Operand in the epilogue's terms; None for the bias."""


def is_plain(problem: Problem) -> bool:
    """Return whether the kernel stores its product as it is."""
    return problem.op is Op.MM and not problem.epilogue


def product_of(problem: Problem) -> Problem:
    """Return the plain product whose output has the elements that the problem stores."""
    return replace(
        problem, op=Op.MM, bias=Bias.NONE, epilogue=NO_EPILOGUE, out_dtype=problem.stored_dtypes[0], weight=1.0
    )


def epilogue_tensors(problem: Problem) -> tuple[EpilogueTensor, ...]:
    """Return the tensors in the order in which the kernel takes them: the bias, then those of the epilogue's text."""
    own = problem.out_dtype.value
    shapes = {Bias.VECTOR: OperandShape.ROW, Bias.MATRIX: OperandShape.MATRIX}
    bias = [EpilogueTensor("bias", shapes[problem.bias], own)] if problem.bias is not Bias.NONE else []
    others = (EpilogueTensor(o.name, o.shape, o.dtype or own, o.transposed, o) for o in problem.epilogue.operands)
    return (*bias, *others)
