"""Tensors of QuACK's epilogue: the bias of an addmm, an epilogue's operands, and outputs behind the first one."""

from dataclasses import replace
from typing import NamedTuple

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE
from gemmtune.engine.records.epilogue.terms import Operand, OperandShape
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import Bias, Op


class EpilogueTensor(NamedTuple):
    """Tensor that an epilogue reads or writes."""

    name: str
    """Name among the arguments of the problem."""
    shape: OperandShape
    """Shape, which says how the tensor is broadcast."""
    dtype: str
    """Element type by its short name."""
    transposed: bool = False
    """Whether a matrix has its columns in memory one after another."""
    operand: Operand | None = None
    """Operand in the epilogue's terms; None for the bias and for outputs."""


def is_plain(problem: Problem) -> bool:
    """Return whether the kernel stores its product as it is."""
    return problem.op is Op.MM and not problem.epilogue


def product_of(problem: Problem) -> Problem:
    """Return the plain product whose output has the elements of the problem's first one."""
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


def further_outputs(problem: Problem) -> dict[str, EpilogueTensor]:
    """Return the outputs behind the first one by name, in the order in which the kernel takes them."""
    dtypes = enumerate(problem.stored_dtypes[1:], 2)
    outputs = (EpilogueTensor(f"out{number}", OperandShape.MATRIX, dtype.value) for number, dtype in dtypes)
    return {output.name: output for output in outputs}
