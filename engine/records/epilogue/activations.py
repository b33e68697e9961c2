"""Activations as the formulas into which torch decomposes them. Needs the standard library alone."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations

from gemmtune.engine.records.epilogue.terms import COMMUTATIVE, Call, Operand, OperandShape, Product, Term


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
