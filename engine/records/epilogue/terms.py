"""Terms of an epilogue: what it reads, the operations on it, and activations as the formulas that torch makes of them.

Needs the standard library alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
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
    ROWS = "rows"
    """Vector of n elements per product of a batch, broadcast over its rows."""

    @property
    def has_rows(self) -> bool:
        """Whether each row of the output has elements of its own."""
        return self in (OperandShape.MATRIX, OperandShape.COLUMN)

    @property
    def has_columns(self) -> bool:
        """Whether each column of the output has elements of its own."""
        return self not in (OperandShape.COLUMN, OperandShape.SCALAR)


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


def expanded(term: Term) -> Term:
    """Return a term with the formulas of activations in place of their names, as torch decomposes them."""
    if not isinstance(term, Call):
        return term
    arguments = tuple(map(expanded, term.arguments))
    formula = dict(_FORMULAS).get(term.op)
    if formula is None:
        return Call(term.op, arguments)
    return _substituted(formula, dict(zip((_X, _SAVED), arguments, strict=False)))


def _substituted(formula: Term, values: Mapping[Term, Term]) -> Term:
    """Return a formula with values for `x` and the saved input."""
    if isinstance(formula, Call):
        return Call(formula.op, tuple(_substituted(argument, values) for argument in formula.arguments))
    return values.get(formula, formula)


def _chain(term: Term, *steps: str | tuple[str, Term]) -> Call:
    """Return operations on a term, each on what the one before gives; one of two arguments comes with its second."""
    for step in steps:
        op, *others = (step,) if isinstance(step, str) else step
        term = Call(op, (term, *others))
    assert isinstance(term, Call)
    return term


_X = Product()
_SAVED = Operand(OperandShape.MATRIX)
_SQRT_HALF, _SQRT_2_BY_PI, _CUBIC = 0.7071067811865476, 0.7978845608028654, 0.044715
_INNER = _chain(_X, ("mul", _X), ("mul", _X), ("mul", _CUBIC), ("add", _X))
_POWER = _chain(_X, ("pow", 3.0), ("mul", _CUBIC), ("add", _X))
_SQUARE = _chain(_SAVED, ("mul", _SAVED))
_TANH = _chain(_SQUARE, ("mul", _SAVED), ("mul", _CUBIC), ("add", _SAVED), ("mul", _SQRT_2_BY_PI), "tanh")
_BELL = _chain(_SQUARE, ("mul", -0.5), "exp", ("mul", 0.3989422804014327))
_ERF = _chain(_SAVED, ("mul", _SQRT_HALF), "erf", ("add", 1.0), ("mul", 0.5))
_SLOPE = _chain(_SQUARE, ("mul", 0.134145), ("add", 1.0), ("mul", _SQRT_2_BY_PI))
_REST = _chain(_SAVED, ("mul", 0.5), ("mul", Call("sub", (1.0, _chain(_TANH, ("mul", _TANH))))), ("mul", _SLOPE))


def _silu_backward(sigmoid: Call) -> Call:
    return _chain(_X, ("mul", sigmoid), ("mul", _chain(_SAVED, ("mul", Call("sub", (1.0, sigmoid))), ("add", 1.0))))


_FORMULAS: tuple[tuple[str, Call], ...] = (
    ("silu", _chain(_X, ("div", _chain(_X, "neg", "exp", ("add", 1.0))))),
    ("gelu", _chain(_X, ("mul", 0.5), ("mul", _chain(_X, ("mul", _SQRT_HALF), "erf", ("add", 1.0))))),
    ("gelu_tanh", _chain(_X, ("mul", 0.5), ("mul", _chain(_INNER, ("mul", _SQRT_2_BY_PI), "tanh", ("add", 1.0))))),
    ("relu_backward", Call("where", (_chain(_SAVED, ("le", 0.0)), 0.0, _X))),
    ("silu_backward", _silu_backward(_chain(_SAVED, "sigmoid"))),
    ("gelu_backward", _chain(_X, ("mul", _chain(_ERF, ("add", _chain(_SAVED, ("mul", _BELL))))))),
    ("gelu_tanh_backward", _chain(_X, ("mul", _chain(_TANH, ("add", 1.0), ("mul", 0.5), ("add", _REST))))),
)
"""Formulas into which torch decomposes activations, of `x` and, in a backward pass, of the saved input `_SAVED`."""

_OTHER_FORMULAS = (
    ("gelu_tanh", _chain(_X, ("mul", 0.5), ("mul", _chain(_POWER, ("mul", _SQRT_2_BY_PI), "tanh", ("add", 1.0))))),
    ("silu_backward", _silu_backward(_chain(_SAVED, "neg", "exp", ("add", 1.0), "reciprocal", ("mul", 1.0)))),
)
"""Formulas of GPT-2's own gelu, and of torch 2.11 and 2.12, where later releases have another of the activation."""


def activation_of(call: Call) -> Term:
    """Return the activation whose formula a call is, or the call itself."""
    for name, formula in (*_FORMULAS, *_OTHER_FORMULAS):
        for bound in _matches(formula, call, {}):
            arguments = (bound[_X], *([bound[_SAVED]] if _SAVED in bound else []))
            return Call(name, arguments)
    return call


def _matches(formula: Term, term: Term, bound: Mapping[Term, Term]) -> Iterator[Mapping[Term, Term]]:
    """Yield the values of `x` and the saved input for which a formula equals a term."""
    if isinstance(formula, Product | Operand):
        if bound.get(formula, term) == term:
            yield {**bound, formula: term}
    elif not isinstance(formula, Call) or not isinstance(term, Call):
        if formula == term:
            yield bound
    elif formula.op == term.op:
        orders = permutations(term.arguments) if term.op in COMMUTATIVE else [term.arguments]
        for arguments in orders:
            yield from _matches_of_all(formula.arguments, arguments, bound)


def _matches_of_all(
    formulas: Sequence[Term], terms: Sequence[Term], bound: Mapping[Term, Term]
) -> Iterator[Mapping[Term, Term]]:
    if not formulas:
        yield bound
        return
    for found in _matches(formulas[0], terms[0], bound):
        yield from _matches_of_all(formulas[1:], terms[1:], found)
