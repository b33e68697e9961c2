"""Epilogues as terms of pointwise operations, in a normal form with a short text. Needs the standard library alone.

An epilogue is written as a chain: each operation takes the value before it, the first one the product. The text is part
of a problem's name, `16x4096x4096:bf16:nt:epilogue=silu.mul(matrix)`, and needs quotes in a shell.

| text | meaning, for a product x of m×n |
|---|---|
| `none` | no epilogue |
| `relu` | relu(x) |
| `add(matrix).relu` | relu(x + r), r of m×n |
| `silu.mul(matrix)` | silu(x) · r |
| `mul(matrix.silu)` | x · silu(r): an argument has a chain of its own |
| `mul(x.sigmoid)` | x · sigmoid(x): `x` is the product |
| `sub(1,x)` | 1 - x: a first argument that is a number stands in the parentheses, as do the others |
| `mul(row).add(row2)` | x · s + t, two vectors of n, broadcast over the rows |
| `mul(column)`, `mul(scalar)` | x · c, a value per row; x · s, one value |
| `add(matrix).mul(matrix)` | (x + r) · r: equal names are one tensor, `matrix2` would be another |
| `mul(matrix[fp32,t])` | the tensor has fp32 elements, and columns in memory one after another |
| `mul(0.5).to(fp32)` | x · 0.5 stored in fp32 |
| `relu+x` | relu(x), and x itself: each is stored |

Elements are those of the product's output unless a type is given. All is computed in fp32, as Inductor does it, so that
conversions between floats on the way do not count: `to` ends an output and stands nowhere else. Terms whose generated
code is equal have one text: the operands of `add`, `mul`, `maximum`, `minimum` and comparisons for equality are in a
fixed order, and the formulas of `silu`, `gelu` and other activations are named after them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from itertools import permutations
from typing import TypeAlias

__all__ = [
    "COMMUTATIVE",
    "ELEMENT_BYTES",
    "MOST_OPERATIONS",
    "NO_EPILOGUE",
    "OPERATIONS",
    "Call",
    "Epilogue",
    "Operand",
    "OperandShape",
    "Output",
    "Product",
    "Term",
    "epilogue_of",
    "expanded",
    "term_text",
]

OPERATIONS: Mapping[str, int] = {
    **dict.fromkeys(("abs", "cos", "erf", "exp", "exp2", "floor", "log", "log1p", "log2", "neg", "reciprocal"), 1),
    **dict.fromkeys(("relu", "rsqrt", "sigmoid", "sin", "sqrt", "tanh"), 1),
    **dict.fromkeys(("gelu", "gelu_tanh", "silu"), 1),
    **dict.fromkeys(("add", "div", "maximum", "minimum", "mul", "pow", "sub"), 2),
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt", "ne"), 2),
    **dict.fromkeys(("gelu_backward", "gelu_tanh_backward", "relu_backward", "silu_backward"), 2),
    "where": 3,
}
"""Number of arguments of each operation; all have the meaning of torch's operation of that name.

`gelu_tanh` is gelu with the approximation by tanh. A `_backward` takes the gradient, then the activation's input.
"""
COMMUTATIVE = frozenset({"add", "mul", "maximum", "minimum", "eq", "ne"})
"""Operations whose two arguments may be exchanged."""
_CHEAP = frozenset(
    ("abs", "add", "eq", "ge", "gt", "le", "lt", "maximum", "minimum", "mul", "ne", "neg", "relu", "sub", "where")
)
_MOST_CHEAP = 4
ELEMENT_BYTES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp32": 4, "bool": 1}
"""Size of an element in bytes, by the types that operands may have; outputs are no `bool`."""
MOST_OPERATIONS = 24
"""Largest number of operations in an epilogue; a longer one has no text."""


class OperandShape(StrEnum):
    """Shape of an epilogue's further operand, for an output of m×n."""

    MATRIX = "matrix"
    """One element per element of the output; with a batch, in every product of it."""
    ROW = "row"
    """Vector of n elements, broadcast over the rows."""
    COLUMN = "column"
    """Vector of m elements, broadcast over the columns; with a batch, one per product."""
    SCALAR = "scalar"
    """One element."""


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


@dataclass(frozen=True, slots=True)
class Output:
    """Tensor of m×n that the kernel stores."""

    term: Term
    """Value of the elements."""
    dtype: str = ""
    """Element type by its short name; empty for that of the product's output."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """Outputs that a kernel computes from its product; without any it stores the product alone.

    Make one by `epilogue_of` or by parsing a text: both bring terms into their normal form.
    """

    outputs: tuple[Output, ...] = ()
    """Outputs in the order of their texts, the product itself last."""

    def __bool__(self) -> bool:
        """Return whether there is an epilogue."""
        return bool(self.outputs)

    def __str__(self) -> str:
        """Return the text, as in `add(matrix).relu`; `none` without an epilogue."""
        return "+".join(_output_text(output) for output in self.outputs) or "none"

    @property
    def operands(self) -> tuple[Operand, ...]:
        """Further operands, each once, in the order of the text."""
        return tuple(dict.fromkeys(found for output in self.outputs for found in _operands(output.term)))

    @property
    def stores_product(self) -> bool:
        """Whether the product itself is stored, too."""
        return any(isinstance(output.term, Product) and not output.dtype for output in self.outputs)

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations, each as often as the text has it."""
        return tuple(call.op for output in self.outputs for call in _calls(output.term))

    def relative_to(self, dtype: str) -> Epilogue:
        """Return the epilogue with types left out where they are those of a product's output."""

        def plain(term: Term) -> Term:
            if isinstance(term, Operand):
                return replace(term, dtype="" if term.dtype == dtype else term.dtype)
            return Call(term.op, tuple(map(plain, term.arguments))) if isinstance(term, Call) else term

        outputs = [Output(plain(o.term), "" if o.dtype == dtype else o.dtype) for o in self.outputs]
        return epilogue_of(outputs)

    @property
    def steps(self) -> int:
        """Number of operations with the formulas of activations written out: a measure of the work per element."""
        return sum(len(list(_calls(expanded(output.term)))) for output in self.outputs)

    @property
    def is_cheap(self) -> bool:
        """Whether a plain product's kernel may compute the epilogue although it was not timed with it.

        That is so for one output of few additions, multiplications and comparisons, with one matrix to read at most:
        it needs few registers, and less time than storing and loading the product does. See experiments/epilogues.
        """
        matrices = [operand for operand in self.operands if operand.shape is OperandShape.MATRIX]
        return (
            len(self.outputs) == 1
            and len(self.operations) <= _MOST_CHEAP
            and set(self.operations) <= _CHEAP
            and len(matrices) <= 1
            and not any(operand.transposed for operand in matrices)
        )


NO_EPILOGUE = Epilogue()
"""Epilogue of a plain product."""


def epilogue_of(outputs: Iterable[Output]) -> Epilogue:
    """Return the epilogue of some outputs, in normal form.

    The result is `NO_EPILOGUE` for the product alone. Tensors may have any numbers, as long as equal ones are equal.

    Raises:
        ValueError: an output does not depend on the product, or there are too many operations.
    """
    return _epilogue_of(tuple(outputs))


@lru_cache(256)
def _epilogue_of(outputs: tuple[Output, ...]) -> Epilogue:
    found = [Output(_normal(output.term), output.dtype) for output in outputs]
    for output in found:
        if not _reads_product(output.term):
            raise ValueError(f"epilogue {_output_text(output)!r} does not use the product")
    found = sorted(dict.fromkeys(found), key=_place)
    if found == [Output(Product())]:
        return NO_EPILOGUE
    epilogue = Epilogue(tuple(_numbered(found)))
    if (count := len(epilogue.operations)) > MOST_OPERATIONS:
        raise ValueError(f"an epilogue of {count} operations is longer than {MOST_OPERATIONS}")
    return epilogue


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


def term_text(term: Term) -> str:
    """Return the text of a term, with `x` for the product where a chain begins with it."""
    if isinstance(term, Product):
        return "x"
    if isinstance(term, Operand):
        facts = ",".join([*([term.dtype] if term.dtype else []), *(["t"] if term.transposed else [])])
        return f"{term.name}[{facts}]" if facts else term.name
    if isinstance(term, Call):
        first, *others = term.arguments
        if isinstance(first, float):
            return f"{term.op}({','.join(map(term_text, term.arguments))})"
        called = f"{term.op}({','.join(map(term_text, others))})" if others else term.op
        return f"{term_text(first)}.{called}"
    return _number_text(term)


def _number_text(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value == int(value) and abs(value) < 1e15 else repr(value)


def _output_text(output: Output) -> str:
    text = term_text(output.term).removeprefix("x.")
    return f"{text}.to({output.dtype})".removeprefix("x.") if output.dtype else text


def _place(output: Output) -> tuple[bool, str]:
    """Return a sort key: the product last, other outputs by their text without the operands' numbers."""
    return isinstance(output.term, Product), _output_text(Output(_renumbered(output.term, {}), output.dtype))


def _operands(term: Term) -> Iterator[Operand]:
    """Yield the operands of a term in the order of its text."""
    if isinstance(term, Operand):
        yield term
    elif isinstance(term, Call):
        for argument in term.arguments:
            yield from _operands(argument)


def _calls(term: Term) -> Iterator[Call]:
    if isinstance(term, Call):
        for argument in term.arguments:
            yield from _calls(argument)
        yield term


def _reads_product(term: Term) -> bool:
    return isinstance(term, Product) or (isinstance(term, Call) and any(map(_reads_product, term.arguments)))


def _numbered(outputs: Sequence[Output]) -> Iterator[Output]:
    """Yield the outputs with operands numbered from 1 on by their first place in the text, per shape."""
    numbers: dict[Operand, int] = {}
    counts = dict.fromkeys(OperandShape, 0)
    for output in outputs:
        for operand in _operands(output.term):
            if operand not in numbers:
                counts[operand.shape] += 1
                numbers[operand] = counts[operand.shape]
    for output in outputs:
        yield Output(_renumbered(output.term, numbers), output.dtype)


def _renumbered(term: Term, numbers: Mapping[Operand, int]) -> Term:
    """Return a term with other numbers of its operands; those without a new number get 1."""
    if isinstance(term, Operand):
        return replace(term, number=numbers.get(term, 1))
    if isinstance(term, Call):
        return Call(term.op, tuple(_renumbered(argument, numbers) for argument in term.arguments))
    return term


def _normal(term: Term) -> Term:
    """Return a term with the operands of commutative operations in order, and with activations by their names."""
    if not isinstance(term, Call):
        return float(term) if isinstance(term, int) else term
    arguments = tuple(map(_normal, term.arguments))
    if term.op in COMMUTATIVE:
        arguments = tuple(sorted(arguments, key=_rank))
    return _named(Call(term.op, arguments))


def _rank(term: Term) -> tuple[bool, bool, str]:
    """Return a sort key: what reads the product first, numbers last, then by text without the operands' numbers."""
    return not _reads_product(term), isinstance(term, float), term_text(_renumbered(term, {}))


def _x(op: str, *others: Term) -> Call:
    return Call(op, (Product(), *others))


def _on(first: Term, op: str, *others: Term) -> Call:
    return Call(op, (first, *others))


_X = Product()
_SAVED = Operand(OperandShape.MATRIX)
_SQRT_HALF, _SQRT_2_BY_PI, _CUBIC = 0.7071067811865476, 0.7978845608028654, 0.044715
_INNER = _on(_on(_on(_x("mul", _X), "mul", _X), "mul", _CUBIC), "add", _X)
_SAVED_SQUARE = _on(_SAVED, "mul", _SAVED)
_SAVED_TANH = _on(
    _on(_on(_on(_on(_SAVED_SQUARE, "mul", _SAVED), "mul", _CUBIC), "add", _SAVED), "mul", _SQRT_2_BY_PI), "tanh"
)


def _silu_backward(sigmoid: Call) -> Call:
    return _on(_x("mul", sigmoid), "mul", _on(_on(_SAVED, "mul", Call("sub", (1.0, sigmoid))), "add", 1.0))


_FORMULAS: tuple[tuple[str, Call], ...] = (
    ("silu", _x("div", _on(_on(_x("neg"), "exp"), "add", 1.0))),
    ("gelu", _on(_x("mul", 0.5), "mul", _on(_on(_x("mul", _SQRT_HALF), "erf"), "add", 1.0))),
    ("gelu_tanh", _on(_x("mul", 0.5), "mul", _on(_on(_on(_INNER, "mul", _SQRT_2_BY_PI), "tanh"), "add", 1.0))),
    ("relu_backward", Call("where", (_on(_SAVED, "le", 0.0), 0.0, _X))),
    ("silu_backward", _silu_backward(_on(_SAVED, "sigmoid"))),
    (
        "gelu_backward",
        _x(
            "mul",
            _on(
                _on(_on(_on(_on(_SAVED, "mul", _SQRT_HALF), "erf"), "add", 1.0), "mul", 0.5),
                "add",
                _on(_SAVED, "mul", _on(_on(_on(_SAVED_SQUARE, "mul", -0.5), "exp"), "mul", 0.3989422804014327)),
            ),
        ),
    ),
    (
        "gelu_tanh_backward",
        _x(
            "mul",
            _on(
                _on(_on(_SAVED_TANH, "add", 1.0), "mul", 0.5),
                "add",
                _on(
                    _on(_on(_SAVED, "mul", 0.5), "mul", Call("sub", (1.0, _on(_SAVED_TANH, "mul", _SAVED_TANH)))),
                    "mul",
                    _on(_on(_on(_SAVED_SQUARE, "mul", 0.134145), "add", 1.0), "mul", _SQRT_2_BY_PI),
                ),
            ),
        ),
    ),
)
"""Formulas into which torch decomposes activations, of `x` and, in a backward pass, of the saved input `_SAVED`."""

_EARLIER_FORMULAS = (
    (
        "silu_backward",
        _silu_backward(_on(_on(_on(_on(_on(_SAVED, "neg"), "exp"), "add", 1.0), "reciprocal"), "mul", 1.0)),
    ),
)
"""Formulas of torch 2.11, where later releases have another of the same activation."""


def _named(call: Call) -> Term:
    """Return the activation whose formula a call is, or the call itself."""
    for name, formula in (*_FORMULAS, *_EARLIER_FORMULAS):
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
