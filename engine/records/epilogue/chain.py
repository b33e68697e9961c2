"""Epilogues as terms of pointwise operations, in a normal form with a short text. Needs the standard library alone.

An epilogue is written as a chain: each operation takes the value before it, the first one the product. The text is part
of a problem's name, `16x4096x4096:bf16:nt:epilogue=silu.mul(matrix)`, and needs quotes in a shell.

`add(matrix).relu` is relu(x + r), for a product x and r of m×n; docs/epilogues.md has the whole grammar.

Elements are those of the product's output unless a type is given. All is computed in fp32, as Inductor does it, so that
conversions between floats on the way do not count: `to` ends an output and stands nowhere else. Terms whose generated
code is equal have one text: the operands of `add`, `mul`, `maximum`, `minimum` and comparisons for equality are in a
fixed order, and the formulas of `silu`, `gelu` and other activations are named after them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from gemmtune.engine.records.epilogue.terms import (
    COMMUTATIVE,
    Call,
    Operand,
    OperandShape,
    Product,
    Term,
    activation_of,
    evaluated,
    expanded,
    term_text,
)

if TYPE_CHECKING:
    import torch

_CHEAP = frozenset(
    ("abs", "add", "eq", "ge", "gt", "le", "lt", "maximum", "minimum", "mul", "ne", "neg", "relu", "sub", "where")
)
_MOST_CHEAP = 4
MOST_OPERATIONS = 24
"""Largest number of operations in an epilogue; a longer one has no text."""


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
        parts = (part for output in self.outputs for part in _parts(output.term))
        return tuple(dict.fromkeys(part for part in parts if isinstance(part, Operand)))

    @property
    def stores_product(self) -> bool:
        """Whether the product itself is stored, too."""
        return any(isinstance(output.term, Product) and not output.dtype for output in self.outputs)

    @property
    def operations(self) -> tuple[str, ...]:
        """Names of the operations, each as often as the text has it."""
        parts = (part for output in self.outputs for part in _parts(output.term))
        return tuple(part.op for part in parts if isinstance(part, Call))

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


class OrderedEpilogue(NamedTuple):
    """Epilogue in its normal form, with the parts that it was made of."""

    epilogue: Epilogue
    """Epilogue, whose outputs and operands are in the order of its text."""
    operands: tuple[Operand, ...]
    """Operands in the order of the text, with the numbers that they were given."""
    output_numbers: tuple[int, ...]
    """Number of each given output among the epilogue's outputs."""


def epilogue_of(outputs: Iterable[Output]) -> Epilogue:
    """Return the epilogue of some outputs, in normal form.

    The result is `NO_EPILOGUE` for the product alone. Tensors may have any numbers, as long as equal ones are equal.

    Raises:
        ValueError: an output does not depend on the product, or there are too many operations.
    """
    return ordered_epilogue(tuple(outputs)).epilogue


def stored(epilogue: Epilogue) -> list[tuple[object, str]]:
    """Return an epilogue as JSON that `restored` reads without a parser: each output's term, and its type.

    The product is the text `x`, an operand an object, a number its text, and an operation a list with its arguments.
    """
    return [(_stored_term(output.term), output.dtype) for output in epilogue.outputs]


def _stored_term(term: Term) -> object:
    if isinstance(term, Call):
        return [term.op, *map(_stored_term, term.arguments)]
    return asdict(term) if isinstance(term, Operand) else term_text(term)


def restored(outputs: Iterable[tuple[object, str]]) -> Epilogue:
    """Return the epilogue of what `stored` has returned, or of its JSON.

    Raises:
        TypeError, ValueError: it is of another form.
    """
    return Epilogue(tuple(Output(_restored_term(term), dtype) for term, dtype in outputs))


def _restored_term(value: Any) -> Term:  # noqa: ANN401 (JSON)
    if isinstance(value, list):
        op, *arguments = value
        return Call(op, tuple(map(_restored_term, arguments)))
    if isinstance(value, dict):
        return Operand(**{**value, "shape": OperandShape(str(value.get("shape")))})
    return Product() if value == "x" else float(value)


def relative_to(epilogue: Epilogue, dtype: str) -> Epilogue:
    """Return an epilogue with types left out where they are those of a product's output."""

    def plain(term: Term) -> Term:
        if isinstance(term, Operand):
            return replace(term, dtype="" if term.dtype == dtype else term.dtype)
        return Call(term.op, tuple(map(plain, term.arguments))) if isinstance(term, Call) else term

    return epilogue_of(Output(plain(o.term), "" if o.dtype == dtype else o.dtype) for o in epilogue.outputs)


def steps_of(epilogue: Epilogue) -> int:
    """Return the number of operations with the formulas of activations written out, which measures the work."""
    return sum(isinstance(part, Call) for output in epilogue.outputs for part in _parts(expanded(output.term)))


@lru_cache(256)
def ordered_epilogue(outputs: tuple[Output, ...]) -> OrderedEpilogue:
    """Return the epilogue of some outputs, with their operands and numbers in its order; raises like `epilogue_of`."""
    given = [Output(_normal(output.term), output.dtype) for output in outputs]
    for output in given:
        if Product() not in _parts(output.term):
            raise ValueError(f"epilogue {_output_text(output)!r} does not use the product")
    found = sorted(dict.fromkeys(given), key=_place)
    numbers = tuple(map(found.index, given))
    if found == [Output(Product())]:
        return OrderedEpilogue(NO_EPILOGUE, (), numbers)
    epilogue = Epilogue(tuple(_numbered(found)))
    if (count := len(epilogue.operations)) > MOST_OPERATIONS:
        raise ValueError(f"an epilogue of {count} operations is longer than {MOST_OPERATIONS}")
    return OrderedEpilogue(epilogue, Epilogue(tuple(found)).operands, numbers)


def _output_text(output: Output) -> str:
    text = term_text(output.term).removeprefix("x.")
    return f"{text}.to({output.dtype})".removeprefix("x.") if output.dtype else text


def _place(output: Output) -> tuple[bool, str]:
    """Return a sort key: the product last, other outputs by their text without the operands' numbers."""
    return isinstance(output.term, Product), _output_text(Output(_renumbered(output.term, {}), output.dtype))


def _parts(term: Term) -> Iterator[Term]:
    """Yield the terms within a term in the order of its text, and the term itself last."""
    if isinstance(term, Call):
        for argument in term.arguments:
            yield from _parts(argument)
    yield term


def _numbered(outputs: Sequence[Output]) -> Iterator[Output]:
    """Yield the outputs with operands numbered from 1 on by their first place in the text, per shape."""
    numbers: dict[Operand, int] = {}
    counts = dict.fromkeys(OperandShape, 0)
    for output in outputs:
        for operand in _parts(output.term):
            if isinstance(operand, Operand) and operand not in numbers:
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
    return activation_of(Call(term.op, arguments))


def _rank(term: Term) -> tuple[bool, bool, str]:
    """Return a sort key: what reads the product first, numbers last, then by text without the operands' numbers."""
    return Product() not in _parts(term), isinstance(term, float), term_text(_renumbered(term, {}))


def computed_by_torch(
    epilogue: Epilogue, product: torch.Tensor, further: Sequence[torch.Tensor]
) -> tuple[torch.Tensor, ...]:
    """Return the outputs of an epilogue in the product's type; without an epilogue, the product.

    `further` has its operands in the order of its text, broadcast to the product by their shapes.
    """
    import torch

    typed = (each if each.dtype == torch.bool else each.to(product.dtype) for each in further)
    values: dict[Term, torch.Tensor] = {Product(): product, **dict(zip(epilogue.operands, typed, strict=True))}
    number, operation = partial(torch.tensor, dtype=product.dtype, device=product.device), partial(getattr, torch)
    outputs = (evaluated(expanded(output.term), values, number, operation) for output in epilogue.outputs)
    return tuple(outputs) or (product,)
