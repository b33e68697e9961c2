"""Check numbers that come from outside: a command line, a file, a notebook."""

import math
import re
from numbers import Integral, Real
from sys import float_info
from typing import TypeVar

from gemmtune.engine.records.errors import UsageError

MOST_INTEGER = 2**63 - 1
"""Largest integer that a file, a database and a loop counter take."""
_SHOWN = 80  # characters of a value in a message
_NUMBER = re.compile(r"[+-]?(\d+|(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?)", re.ASCII)
_N = TypeVar("_N", int, float)


def checked(
    value: object,
    name: str,
    kind: type[_N],
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
    error: type[Exception] = UsageError,
) -> _N:
    """Return a finite number within its bounds; an integer may stand for a float, a truth value for neither.

    Args:
        value: the number, or anything else.
        name: name of the field, for the message.
        kind: int or float.
        above: exclusive lower bound.
        least: inclusive lower bound.
        most: inclusive upper bound.
        error: kind of error to raise.

    Raises:
        UsageError: it is no such number; the message names field, value and bounds.
    """
    largest = MOST_INTEGER if kind is int else float_info.max
    limit = largest if most == math.inf else most
    is_number = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
    value = value.item() if is_number and hasattr(value, "item") else value  # numpy warns of float32 < largest
    if is_number and -largest <= value <= limit and value > above and value >= least:  # type: ignore[operator]
        return kind(value)  # type: ignore[arg-type] # checked above
    bounds = f" above {above:g}" if above > -math.inf else f" from {least:g} on" if least > -math.inf else ""
    if most < math.inf or (is_number and value > limit):  # type: ignore[operator]
        bounds += f" and at most {limit}"
    raise error(f"{name}={shown(value)} is not {'an integer' if kind is int else 'a number'}{bounds}")


def checked_fraction(value: object, name: str, *, above: float = -math.inf, least: float = -math.inf) -> float:
    """Return a fraction below 1, within its bounds; a percentage is the usual mistake.

    Raises:
        UsageError: it is no such number; the message says what a percentage would be.
    """
    found = checked(value, name, float, above=above, least=least)
    if found >= 1:
        raise UsageError(
            f"{name}={found:g} is {found:.0%}, not a fraction below 1; for {found:g} % write {found / 100:g}"
        )
    return found


def parse_number(text: str) -> int | float:
    """Return the number that a text spells in decimal ASCII digits: an int of at most 18 digits, else a float.

    Raises:
        ValueError: the text spells no number, or one that is too large.
    """
    spelled = _NUMBER.fullmatch(text)
    if spelled is None:
        raise ValueError(text)
    if spelled[2] is None and len(spelled[1]) <= 18:
        return int(text)
    if not math.isfinite(found := float(text)):
        raise ValueError(text)
    return found


def shown(value: object) -> str:
    """Return a value as a message shows it: in one line, cut where it is long."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of more than 4300 digits, or a value that contains itself
        return f"{type(value).__name__} too large to show"
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"
