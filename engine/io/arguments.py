"""Check values against the types that a function or a record states for them."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, wraps
from inspect import formatannotation, signature
from numbers import Integral, Real
from types import UnionType
from typing import Any, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

from gemmtune.engine.io.numbers import shown
from gemmtune.engine.records.errors import UsageError

_P = ParamSpec("_P")
_R = TypeVar("_R")
_NUMBERS: Mapping[object, type] = {int: Integral, float: Real}
_MODULE = re.compile(r"(?:\w+\.)+(?=\w)")
hints_of = cache(get_type_hints)
"""Types that a function, a class or a record states, by name; read once."""


def check_types(values: Mapping[str, object], hints: Mapping[str, Any]) -> None:
    """Check each value that a type is stated for.

    Args:
        values: values by name.
        hints: types by name, as `get_type_hints` returns them. Elements are checked, but not those of an iterator.

    Raises:
        UsageError: a value is of another type; the message names value and type.
    """
    for name, value in values.items():
        if name in hints and not _is_of(value, hints[name]):
            wanted = _MODULE.sub("", formatannotation(hints[name]))
            raise UsageError(f"{name}={shown(value)} is not of type {wanted}")


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Let a function raise UsageError where an argument by name is not of the annotated type."""
    names = [each.name for each in signature(function).parameters.values() if each.kind is each.POSITIONAL_OR_KEYWORD]

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        check_types({**dict(zip(names, args, strict=False)), **kwargs}, hints_of(function))
        return function(*args, **kwargs)

    return checked


def _is_of(value: object, hint: Any) -> bool:  # noqa: ANN401 (a type, or what typing makes of types)
    kind, inner = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_of(value, each) for each in inner)
    if kind is type:
        return isinstance(value, type) and issubclass(value, inner[:1])
    if kind in _NUMBERS:
        return isinstance(value, _NUMBERS[kind]) and not isinstance(value, bool)
    if kind is Any or not isinstance(kind, type):
        return True
    if not isinstance(value, kind):
        return False
    has_elements = issubclass(kind, Iterable) and not issubclass(kind, Mapping) and isinstance(value, Collection)
    return not (has_elements and inner) or all(_is_of(each, inner[0]) for each in value)  # type: ignore[attr-defined]
