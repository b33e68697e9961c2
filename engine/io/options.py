"""Options: each is stated once, at the field that holds its value; every door to the field is made from that."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache
from inspect import Parameter, signature
from typing import TypeVar

from gemmtune.engine.io.arguments import check_types, hints_of
from gemmtune.engine.io.numbers import checked, checked_fraction, shown
from gemmtune.engine.records.errors import UsageError, did_you_mean

_T = TypeVar("_T")


class Value(Enum):
    """Kind of value that an option takes, as a campaign file words it."""

    INTEGER = "integer"
    FRACTION = "fraction"
    SECONDS = "number"
    NAME = "text"
    NAMES = "text or list of texts"
    SAMPLER = "text: a name or a class"
    PROBLEMS = "list of texts"
    LIMITS = "true, false or a table"
    FLAG = "true or false"


@dataclass(frozen=True, slots=True)
class Option:
    """Statement of an option."""

    sentence: str
    """Help, whose first sentence stands alone."""
    value: Value
    """Kind of the value."""
    group: str = ""
    """Heading that the option stands below in help."""
    of: type = object
    """Seam of the plug-ins that are named, or dataclass of the limits."""
    least: float = -math.inf
    """Inclusive lower bound of a number."""
    above: float = -math.inf
    """Exclusive lower bound of a number."""
    name: str = ""
    """Name that users give; by default the field's."""
    field: str = ""
    """Name of the field, filled in by `options_of`."""
    default: object = None
    """Default of the field, filled in by `options_of`."""

    @property
    def is_number(self) -> bool:
        """Whether the value is a number, which has bounds."""
        return self.value in (Value.INTEGER, Value.FRACTION, Value.SECONDS)

    @property
    def phrase(self) -> str:
        """First sentence of the help, as a phrase that more may follow."""
        first = self.sentence.partition(". ")[0].rstrip(".")
        return first[0].lower() + first[1:]

    @property
    def shown(self) -> str:
        """Default in words; empty for none."""
        names = self.default if isinstance(self.default, tuple) else (self.default,)
        return ", ".join(str(each) for each in names if each is not None and each is not False)

    def checked(self, value: object, prefix: str = "") -> float:
        """Return a number of the stated type within its bounds.

        Raises:
            UsageError: it is no such number; the message has `prefix` and name, value and bounds.
        """
        if self.value is Value.FRACTION:
            return checked_fraction(value, prefix + self.name, least=self.least, above=self.above)
        kind = int if self.value is Value.INTEGER else float
        return checked(value, prefix + self.name, kind, least=self.least, above=self.above)


def stated(default: _T, option: Option) -> _T:
    """Return a dataclass's field that has the default and states the option; typed as the value it will hold."""
    found: _T = field(default=default, metadata={"option": option})
    return found


@cache
def options_of(record: type) -> Mapping[str, Option]:
    """Return the options that the fields of a dataclass state, by name."""
    found = [(each, each.metadata["option"]) for each in fields(record) if "option" in each.metadata]
    named = [replace(option, name=option.name or x.name, field=x.name, default=x.default) for x, option in found]
    return {option.name: option for option in named}


def check_options(record: object, prefix: str = "") -> None:
    """Check the fields of a frozen dataclass in its `__post_init__`, and give each number the type that is stated.

    Raises:
        UsageError: a field is not of its type, or see `Option.checked`.
    """
    kind: type = type(record)
    options = {option.field: option for option in options_of(kind).values()}
    for each in fields(kind):
        option, value = options.get(each.name), getattr(record, each.name)
        if option is None or not option.is_number:
            name = option.name if option else each.name
            check_types({prefix + name: value}, {prefix + name: hints_of(kind)[each.name]})
        elif value is not None or option.default is not None:
            object.__setattr__(record, each.name, option.checked(value, prefix))


def limits_of(option: Option, value: object) -> object:
    """Return the limits that a caller gives an option: the default ones for True, None for False, or by their names.

    Raises:
        UsageError: the value is of another kind, or names a limit that is unknown or out of bounds.
    """
    if isinstance(value, bool):
        return option.of() if value else None
    if isinstance(value, option.of):
        return value
    known = options_of(option.of)
    if not isinstance(value, Mapping):
        raise UsageError(f"{option.name}={shown(value)} is not true, false or a table of {' and '.join(known)}")
    for key in value:
        if key not in known:
            meant = did_you_mean(str(key), known)
            raise UsageError(f"unknown key {key!r} in {option.name}; {meant}known: {', '.join(sorted(known))}")
    return option.of(**value)


def show_options(function: Callable[..., object], after: str, annotations: Mapping[Option, object]) -> None:
    """Show options by keyword in a function's signature, behind a parameter, in place of its `**options`."""
    whole = signature(function)
    own = [each for each in whole.parameters.values() if each.kind is not each.VAR_KEYWORD]
    shown = [
        Parameter(
            x.name,
            Parameter.KEYWORD_ONLY,
            default=False if x.value in (Value.LIMITS, Value.FLAG) else None,
            annotation=each,
        )
        for x, each in annotations.items()
    ]
    place = 1 + [each.name for each in own].index(after)
    whole = whole.replace(parameters=[*own[:place], *shown, *own[place:]])
    function.__signature__ = whole  # type: ignore[attr-defined]
