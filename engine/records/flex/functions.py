"""Functions of attention, which say what a query sees and how a score changes, as texts that equal functions share.

A function is a number, a name or a tuple of an operation and its operands. Names are the score `s`, the indices `b`,
`h`, `q` and `kv` of batch, head, query and key, and `t0` to `t3`, tensors that the function reads: `at(t0,q)`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import reduce
from typing import Any, TypeAlias

from gemmtune.engine.records.number_text import number_of, number_text

Function: TypeAlias = "int | float | str | tuple[Any, ...]"
"""Number, name, or operation with its operands."""

TENSORS = ("t0", "t1", "t2", "t3")
"""Names of tensors that a function may read."""
NAMES = ("s", "b", "h", "q", "kv", *TENSORS)
"""Names that a function may read."""
OPERATIONS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(operator, name) for name in ("le", "lt", "eq", "ne", "add", "sub", "mul", "neg")},
    "and": operator.and_,
    "or": operator.or_,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
}
"""Operations of tensors and numbers by name; `at`, `pow` and those of `SHARED` come from who evaluates."""
_OF_ONE = ("tanh", "exp", "exp2", "log", "log1p", "sqrt")
SHARED = {**{name: name for name in (*_OF_ONE, "abs", "minimum", "maximum", "where")}, "not": "logical_not"}
"""Names by which torch and numpy both have an operation."""
KNOWN = (*OPERATIONS, *SHARED, "at", "pow", "ge", "gt")
"""Operations that a function may have."""
_OF_NUMBERS: Mapping[str, Callable[..., Any]] = {
    **{name: getattr(math, name) for name in (*_OF_ONE, "pow")},
    **{"abs": abs, "minimum": min, "maximum": max, "not": operator.not_},
}
_SORTED = ("and", "or", "eq", "ne", "add", "mul", "minimum", "maximum")
_FLAT = ("and", "or")
_CONDITIONS = ("le", "lt", "ge", "gt", "eq", "ne", "at")
_OF_CONDITIONS = ("and", "or", "not", "mul", "where")
_SWAPPED = {"ge": "le", "gt": "lt"}
_NEGATED = {"le": "gt", "lt": "ge", "eq": "ne", "ne": "eq"}
_ONE, _DIVIDED = ("not", "neg", "abs", *_OF_ONE), ("div", "floordiv", "mod")
_SEVERAL = ("and", "or", "add", "mul", "at")
_DEEPEST = 100  # operations within each other, of a text
_TOKEN = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|-?inf\b|[a-z]\w*|[(),])", re.ASCII)


def parse_function(text: str) -> Function:
    """Return the canonical function of a text, `and(le(kv,q),ge(kv,sub(q,9)))`; raises ValueError for another text."""
    tokens, at = [], 0
    while at < len(text):
        if (found := _TOKEN.match(text, at)) is None:
            raise ValueError(f"{text[:80]!r} is no function: {text[at : at + 20]!r} is neither a name nor a number")
        tokens.append(found[1])
        at = found.end()
    function, rest = _parsed(tokens, text)
    if rest:
        raise ValueError(f"{text[:80]!r} is no function: nothing may follow it, and {''.join(rest)[:20]!r} does")
    return canonical(function)


def _parsed(tokens: list[str], text: str, depth: int = 0) -> tuple[Function, list[str]]:
    if not tokens or tokens[0] in "(),":
        raise ValueError(f"{text[:80]!r} is no function: an operand is missing")
    head, *rest = tokens
    if re.match(r"-?(\d|inf\b)", head):
        return _number(number_of(head)), rest
    if rest[:1] != ["("]:
        if head not in NAMES:
            raise ValueError(f"{text[:80]!r} reads {head!r}; known: {', '.join(NAMES)}")
        return head, rest
    if head not in KNOWN:
        raise ValueError(f"{text[:80]!r} has the operation {head!r}; known: {', '.join(KNOWN)}")
    if depth == _DEEPEST:
        raise ValueError(f"{text[:80]!r} has more than {_DEEPEST} operations within each other: write it flatter")
    operands: list[Function] = []
    while rest[:1] in (["("], [","]):
        operand, rest = _parsed(rest[1:], text, depth + 1)
        operands.append(operand)
    if rest[:1] != [")"]:
        raise ValueError(f"{text[:80]!r} is no function: a bracket is not closed")
    least, has = 1 if head in _ONE else 3 if head == "where" else 2, len(operands)
    if has != least and (has < least or head not in _SEVERAL):
        takes = f"{least}{' or more' * (head in _SEVERAL)}"
        raise ValueError(f"{text[:80]!r}: {head} takes {takes} operand{'s' * (takes != '1')}, and has {has}")
    if head == "at" and operands[0] not in TENSORS:
        raise ValueError(f"{text[:80]!r}: at reads a tensor, one of {', '.join(TENSORS)}, by indices: at(t0,q)")
    if head in _DIVIDED and operands[1] == 0:
        raise ValueError(f"{text[:80]!r}: {head} divides by 0: give a divisor that is not 0")
    return (head, *operands), rest[1:]


def text_of(function: Function) -> str:
    """Return the text of a function, which `parse_function` reads."""
    if isinstance(function, tuple):
        return f"{function[0]}({','.join(map(text_of, function[1:]))})"
    return function if isinstance(function, str) else number_text(float(function))


def canonical(function: Function) -> Function:
    """Return one of all functions that differ in the order of operands or in the side of a comparison alone.

    Comparisons of sums become `le` with each index on the side where nothing is subtracted. Operations on numbers
    alone become their result.
    """
    if not isinstance(function, tuple):
        return _number(function) if isinstance(function, int | float) else function
    name, operands = function[0], [canonical(operand) for operand in function[1:]]
    if name in _SWAPPED:
        name, operands = _SWAPPED[name], operands[::-1]
    if name in ("le", "lt"):
        name, *operands = _compared(name, *operands)
    first = operands[0]
    if name == "not" and isinstance(first, tuple) and first[0] in _NEGATED:
        return canonical((_NEGATED[first[0]], *first[1:]))
    if name == "where" and first in (0, 1):
        return operands[1] if first else operands[2]
    if name in _FLAT:
        flat = [
            part for each in operands for part in (each[1:] if isinstance(each, tuple) and each[0] == name else [each])
        ]
        operands, neutral = [*dict.fromkeys(flat)], int(name == "and")
        if all(map(is_condition, operands)):  # `kv & 1` is a bit
            operands = [each for each in operands if each != neutral]
            if 1 - neutral in operands:
                return 1 - neutral
        if len(operands) < 2:
            return operands[0] if operands else neutral
    if not any(isinstance(each, str | tuple) for each in operands):
        with suppress(ArithmeticError, ValueError, TypeError):  # what has no value stays as it is written
            return _number(evaluated((name, *operands), {}, _OF_NUMBERS))
    if name in _SORTED:
        operands.sort(key=text_of)
    return (name, *operands)


def is_condition(function: Function) -> bool:
    """Return whether a function gives 1 and 0 alone, as elements of a tensor are taken to be where they decide."""
    if not isinstance(function, tuple):
        return function in (0, 1)
    name, *operands = function
    return name in _CONDITIONS or (name in _OF_CONDITIONS and all(map(is_condition, operands)))


def truth(function: Function) -> Function:
    """Return the condition that a function is not 0."""
    return function if is_condition(function) else ("ne", function, 0)


def _compared(name: str, left: Function, right: Function) -> tuple[Any, ...]:
    lefts, rights = _terms(left), _terms(right)
    if lefts is None or rights is None:
        return (name, left, right)
    total = {each: rights.get(each, 0) - lefts.get(each, 0) for each in {**lefts, **rights}}
    number = total.pop("", 0) - (name == "lt")
    if any(factor not in (-1, 0, 1) for factor in total.values()):
        return (name, left, right)
    less = sorted(each for each, factor in total.items() if factor < 0)
    more = sorted(each for each, factor in total.items() if factor > 0)
    if number < 0 and not less:
        return ("le", -number, _sum([*more]))
    return ("le", _sum(less), _sum([*more, *([number] if number or not more else [])]))


def _terms(function: Function) -> dict[str, int] | None:
    """Return the factor of each index in a sum, and its number under an empty name; None for another function."""
    if isinstance(function, str):
        return {function: 1} if function != "s" else None
    if isinstance(function, int):
        return {"": function}
    if isinstance(function, tuple) and function[0] in ("add", "sub") and len(function) == 3:
        one, other = map(_terms, function[1:])
        if one is not None and other is not None:
            sign = 1 if function[0] == "add" else -1
            return {each: one.get(each, 0) + sign * other.get(each, 0) for each in {**one, **other}}
    return None


def _sum(terms: list[Any]) -> Function:
    if not terms:
        return 0
    first, *rest = terms
    return ("add", *sorted(terms, key=text_of)) if rest else first


def _number(value: float) -> int | float:
    return int(value) if float(value).is_integer() else float(value)


def evaluated(function: Function, values: Mapping[str, Any], others: Mapping[str, Callable[..., Any]]) -> Any:  # noqa: ANN401 (tensors or arrays)
    """Return what a canonical function gives for values by name; `others` has operations that `OPERATIONS` lacks."""
    if not isinstance(function, tuple):
        return values[function] if isinstance(function, str) else function
    name, *operands = function
    operation, found = others.get(name) or OPERATIONS[name], [evaluated(each, values, others) for each in operands]
    return reduce(operation, found) if name in _SORTED else operation(*found)


def renamed(function: Function, names: Mapping[str, str]) -> Function:
    """Return a function with other names for some."""
    if isinstance(function, tuple):
        return canonical((function[0], *(renamed(each, names) for each in function[1:])))
    return names.get(function, function) if isinstance(function, str) else function


def reads(function: Function, name: str) -> bool:
    """Return whether a function reads a name."""
    return function == name or (isinstance(function, tuple) and any(reads(each, name) for each in function[1:]))
