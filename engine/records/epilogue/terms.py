"""Terms of an epilogue: what it reads, and the operations on it. Needs the standard library alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias, TypeVar

from gemmtune.engine.records.number_text import number_text

POINTWISE: Mapping[str, int] = {
    **dict.fromkeys(("abs", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "neg", "reciprocal"), 1),
    **dict.fromkeys(("relu", "rsqrt", "sigmoid", "sin", "sqrt", "tanh"), 1),
    **dict.fromkeys(("add", "div", "maximum", "minimum", "mul", "pow", "sub"), 2),
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt", "ne"), 2),
    "where": 3,
}
"""Number of arguments of each operation that torch's graphs have under its name."""
OPERATIONS: Mapping[str, int] = {
    **POINTWISE,
    **dict.fromkeys(("gelu", "gelu_tanh", "silu"), 1),
    **dict.fromkeys(("gelu_backward", "gelu_tanh_backward", "relu_backward", "silu_backward"), 2),
}
"""Number of arguments of each operation and activation; all have the meaning of torch's operation of that name.

`gelu_tanh` is gelu with the approximation by tanh. A `_backward` takes the gradient, then the activation's input.
"""
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne"})
"""Operations whose two arguments may be exchanged."""
ELEMENT_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "bool": 1}
"""Size of an element in bytes, by the types that operands may have; outputs are no `bool`."""


class OperandShape(StrEnum):
    """Shape of an epilogue's further operand, for an output of m×n."""

    MATRIX = "matrix"
    """One element per element of the output; with a batch, in every product of it."""
    ROW = "row"
    """Vector of n elements, broadcast over the rows."""
    COLUMN = "column"
    """Vector of m elements, broadcast over the columns; with a batch, one per product."""
    SCALAR = "scalar"
    """One element for the whole output."""
    GATE = "gate"
    """Vector of n elements per block of rows, such as the rows of a sample, at any distance from each other."""

    @property
    def has_rows(self) -> bool:
        """Whether each row of the output has elements of its own."""
        return self in (OperandShape.MATRIX, OperandShape.COLUMN)

    @property
    def has_columns(self) -> bool:
        """Whether each column of the output has elements of its own."""
        return self in (OperandShape.MATRIX, OperandShape.ROW, OperandShape.GATE)


@dataclass(frozen=True, slots=True)
class Product:
    """Result of the product, before the epilogue."""


@dataclass(frozen=True, slots=True)
class Operand:
    """Further tensor that an epilogue reads."""

    shape: OperandShape
    """Shape, which says how the tensor is broadcast."""
    number: int = 1
    """Number among the epilogue's operands of that shape, from 1 on in the order of the text."""
    dtype: str = ""
    """Element type by its short name; empty for that of the product's output."""
    transposed: bool = False
    """Whether a matrix has its columns in memory one after another, instead of its rows."""
    block: int = 0
    """Rows of the output per vector of a gate; 0 for other shapes."""

    @property
    def name(self) -> str:
        """Name in the text, without type and layout: `matrix`, `row2`."""
        return f"{self.shape}{self.number if self.number > 1 else ''}"


@dataclass(frozen=True, slots=True)
class Call:
    """Operation with its arguments."""

    op: str
    """Name, one of OPERATIONS."""
    arguments: tuple[Term, ...]
    """Arguments in torch's order."""


Term: TypeAlias = Product | Operand | Call | float
"""Value that an epilogue computes, reads or has as a constant."""

_Value = TypeVar("_Value")


def evaluated(
    term: Term,
    values: MutableMapping[Term, _Value],
    number: Callable[[float], _Value],
    operation: Callable[[str], Callable[..., _Value]],
) -> _Value:
    """Return the value of a term in any arithmetic, given those of a number and the function of an operation's name.

    `values` has the product and each operand, and takes each operation, so that none is computed twice.
    """
    if isinstance(term, float):
        return number(term)
    if isinstance(term, Call) and term not in values:
        arguments = (evaluated(each, values, number, operation) for each in term.arguments)
        values[term] = operation(term.op)(*arguments)
    return values[term]


def term_text(term: Term) -> str:
    """Return the text of a term, with `x` for the product where a chain begins with it."""
    if isinstance(term, Product):
        return "x"
    if isinstance(term, Operand):
        stated = (str(term.block or ""), term.dtype, "t" * term.transposed)
        facts = ",".join(each for each in stated if each)
        return f"{term.name}[{facts}]" if facts else term.name
    if isinstance(term, Call):
        first, *others = term.arguments
        if isinstance(first, float):
            return f"{term.op}({','.join(map(term_text, term.arguments))})"
        called = f"{term.op}({','.join(map(term_text, others))})" if others else term.op
        return f"{term_text(first)}.{called}"
    return number_text(term)
