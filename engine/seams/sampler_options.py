"""Samplers with other arguments than their defaults, as classes of their own."""

import copyreg
import inspect
import json
import re
from abc import ABCMeta
from collections.abc import Iterable, Mapping
from typing import Any

from gemmtune.engine.io.arguments import check_types, checks_arguments, hints_of
from gemmtune.engine.records.config import Value
from gemmtune.engine.records.errors import UsageError, did_you_mean
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler

_CALL = re.compile(r"(?P<name>[^()]+)\((?P<options>[^()]*)\)")


class _WithOptions(ABCMeta):
    """Type of the classes that `sampler` makes, which travel to other processes by their parts."""

    parts: tuple[type[Sampler], str, Mapping[str, Value]]


@checks_arguments
def sampler(named: str | type[Sampler], **options: Value) -> type[Sampler]:
    """Return a sampler's class with options in the place of its defaults, for `replay`, `tune` or `AskTell`.

    Args:
        named: registered name, or class derived from `Sampler`; one with options keeps those that are not given anew.
        **options: arguments by keyword of the class's constructor.

    Raises:
        UnknownPlugin: no sampler has that name.
        UsageError: the constructor has no such argument, or the value is of another type.

    Example:
        >>> import gemmtune as gt
        >>> study = gt.replay("h200", ["evolution", gt.sampler("evolution", children=16)], budget=8, seeds=1)
        >>> study.samplers
        ('evolution', 'evolution(children=16)')
    """
    kind = registry.sampler(named) if isinstance(named, str) else named
    label = named if isinstance(named, str) else registry.name_of(kind)
    if "parts" in vars(kind):
        kind, label, earlier = vars(kind)["parts"]
        label, options = label.partition("(")[0], {**earlier, **options}
    parameters = inspect.signature(kind).parameters.values()
    known = [each.name for each in parameters if each.default is not each.empty]
    for name in options:
        if name not in known:
            listed = f"it has: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"sampler {label} has no option {name!r}; {did_you_mean(name, known)}{listed}")
    check_types(options, hints_of(kind.__init__))
    if not options:
        return kind
    texts = ",".join(f"{name}={value}" for name, value in options.items())
    return _made(kind, f"{label}({texts})", options)


def _made(kind: type[Sampler], name: str, options: Mapping[str, Value]) -> type[Sampler]:
    def begin(self: Any, search: Search) -> None:  # noqa: ANN401 (of the class that is made here)
        kind.__init__(self, search, **options)

    body = {"__init__": begin, "__module__": kind.__module__, "__doc__": kind.__doc__, "parts": (kind, name, options)}
    made: Any = _WithOptions(name, (kind,), body)
    found: type[Sampler] = made
    return found


def _reduced(made: _WithOptions) -> str | tuple[Any, ...]:
    """Return how a class travels; one that is derived from a made class travels by its name, as others do."""
    return (_made, made.parts) if "parts" in vars(made) else made.__qualname__


copyreg.pickle(_WithOptions, _reduced)


def sampler_called(text: str) -> tuple[str, dict[str, Value]]:
    """Return name and options of a sampler's text, `evolution` or `evolution(children=64,population=8)`."""
    found = _CALL.fullmatch(text)
    if found is None:
        return text, {}
    return found["name"].strip(), options_from(filter(None, map(str.strip, found["options"].split(","))))


def options_from(texts: Iterable[str]) -> dict[str, Value]:
    """Return the options that texts name=value spell: numbers, true, false, or else texts.

    Raises:
        UsageError: a text is no name=value.
    """
    found: dict[str, Value] = {}
    for text in texts:
        name, is_given, spelled = (part.strip() for part in text.partition("="))
        if not (name and is_given):
            raise UsageError(f"{text!r} is no option of a sampler: write name=value")
        try:
            value = json.loads(spelled)
        except ValueError:
            value = spelled
        found[name] = value if isinstance(value, bool | int | float) else spelled
    return found
