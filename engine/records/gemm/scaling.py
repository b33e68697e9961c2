"""Scales of a product of 8-bit floats: the leading chain of its epilogue. Needs the standard library alone.

`mul(column[fp32]).mul(row[fp32])` has a scale per row of A and per column of B, `mul(scalar[fp32]).mul(scalar2[fp32])`
one per operand. A vector in the output's type behind them, `add(row)`, is the bias that `torch._scaled_mm` takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from gemmtune.engine.records.epilogue.chain import NO_EPILOGUE, Epilogue, Output, relative_to
from gemmtune.engine.records.epilogue.terms import Call, Operand, OperandShape, Product, Term

_SHAPES = ((OperandShape.COLUMN, OperandShape.ROW), (OperandShape.SCALAR, OperandShape.SCALAR))
_SCALE_TYPE = "fp32"
_PRODUCT = Product()


@dataclass(frozen=True, slots=True)
class Scaling:
    """Scales and bias that lead an epilogue, and what follows them."""

    a: Operand
    """Scale of A: a column, or a scalar."""
    b: Operand
    """Scale of B: a row, or a scalar."""
    bias: Operand | None
    """Row that is added to the scaled product; None without one."""
    rest: Epilogue
    """Epilogue behind them. Its operands keep the numbers that they have in the whole epilogue."""

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Scales of A and B, and the bias if there is one."""
        return (self.a, self.b) if self.bias is None else (self.a, self.b, self.bias)

    @property
    def is_row_wise(self) -> bool:
        """Whether rows of A and columns of B have scales of their own."""
        return self.a.shape is OperandShape.COLUMN


@lru_cache(1024)
def scaling_of(epilogue: Epilogue, out_dtype: str) -> Scaling | None:
    """Return the scales that an epilogue of a product begins with; None if an output does not begin with both.

    `out_dtype` is the short name of the type of the product's output.
    """
    leading = [] if not epilogue else _leading(epilogue.outputs[0].term)
    for count in range(len(leading), 1, -1):
        base, scales = leading[count - 1], _operands_of(leading[:count], out_dtype)
        if scales is None or any(_count(each.term, Product()) != _count(each.term, base) for each in epilogue.outputs):
            continue
        rest = tuple(Output(_without(output.term, base), output.dtype) for output in epilogue.outputs)
        behind = NO_EPILOGUE if rest == (Output(Product()),) else Epilogue(rest)
        if not {*scales} & {*behind.operands}:
            a, b, *bias = scales
            return Scaling(a, b, bias[0] if bias else None, behind)
    return None


def canonical(epilogue: Epilogue, out_dtype: str, *, is_float8: bool) -> Epilogue:
    """Return an epilogue with types relative to the output's, and the scales of 8-bit floats in the usual order.

    Raises:
        ValueError: the outputs are none of an epilogue, see `epilogue_of`.
    """
    relative = relative_to(epilogue, out_dtype)
    return _ordered(relative, out_dtype) if is_float8 else relative


@lru_cache(1024)
def _ordered(epilogue: Epilogue, out_dtype: str) -> Epilogue:
    """Return an epilogue that begins with the scales of B's columns and then A's rows with these in the usual order.

    Kernels and torch scale the rows first. The orders differ in the last bits of fp32, which every tolerance covers.
    """
    leading = _leading(epilogue.outputs[0].term)[:2] if epilogue else []
    scales = [next((each for each in call.arguments if isinstance(each, Operand)), None) for call in leading]
    shapes = [each.shape for each in scales if each is not None and (each.dtype or out_dtype) == _SCALE_TYPE]
    if [call.op for call in leading] != ["mul", "mul"] or shapes != [OperandShape.ROW, OperandShape.COLUMN]:
        return epilogue
    column, row = (each for each in reversed(scales) if each is not None)
    found = Call("mul", (Call("mul", (Product(), column)), row))
    if any(_count(each.term, Product()) != _count(each.term, leading[1]) for each in epilogue.outputs):
        return epilogue
    return Epilogue(tuple(Output(_without(each.term, leading[1], found), each.dtype) for each in epilogue.outputs))


def leading_factors(epilogue: Epilogue) -> tuple[Operand, ...]:
    """Return what the product is multiplied with first, at most twice: the scales of 8-bit operands of any type."""
    found: list[Operand] = []
    for call in _leading(epilogue.outputs[0].term)[:2] if epilogue else []:
        factor = next((each for each in call.arguments if isinstance(each, Operand)), None)
        if call.op != "mul" or factor is None or factor.shape is OperandShape.MATRIX:
            break
        found.append(factor)
    return tuple(found)


def _leading(term: Term) -> list[Call]:
    """Return the calls on the product from the innermost on, at most the two scales and the bias."""
    found: list[Call] = []
    while isinstance(term, Call):
        found.insert(0, term)
        term = next((each for each in term.arguments if _count(each, Product())), 0.0)
    return found[:3] if term == Product() else []


def _operands_of(calls: Sequence[Call], out_dtype: str) -> tuple[Operand, ...] | None:
    """Return the scales and the bias of a chain; None if it is another chain."""
    if [call.op for call in calls] != ["mul", "mul", "add"][: len(calls)]:
        return None
    values: list[Operand] = []
    read: Term = Product()
    for call in calls:
        if call.arguments[0] != read or not isinstance(call.arguments[1], Operand):
            return None
        values.append(call.arguments[1])
        read = call
    a, b, *bias = values
    known = (a.shape, b.shape) in _SHAPES and a.dtype == b.dtype and (a.dtype or out_dtype) == _SCALE_TYPE and a != b
    if bias and (bias[0].shape is not OperandShape.ROW or bias[0].dtype or out_dtype == _SCALE_TYPE):
        return None  # torch adds no bias to an output of fp32
    return tuple(values) if known else None


def _count(term: Term, wanted: Term) -> int:
    """Return how often a term has another in it."""
    return (term == wanted) + (sum(_count(each, wanted) for each in term.arguments) if isinstance(term, Call) else 0)


def _without(term: Term, base: Call, instead: Term = _PRODUCT) -> Term:
    """Return a term with another, by default the product, in place of the chain."""
    if term == base:
        return instead
    if not isinstance(term, Call):
        return term
    return Call(term.op, tuple(_without(each, base, instead) for each in term.arguments))
