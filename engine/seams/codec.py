"""One codec between frozen records and JSON values: each field under its name in code, checked by its type.

A record is an object of its fields, a Workload one of texts, a Toolchain a list of pairs, an Enum its value. Nothing is
coerced but whole numbers in fields of floats, and no name in JSON is ever imported. A field's metadata refine this:

| metadata | meaning |
|---|---|
| `above`, `least`, `most` | bounds of the field's numbers, as `io.numbers.checked` takes them |
| `sparse` | left out of JSON where it has its default, as in files from before the field was there |
| `json`: False | never in JSON |

A record with a property `fault` is refused for the reason that it gives.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum
from functools import cache, partial
from itertools import count, cycle
from math import isfinite, nan
from sys import float_info
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from gemmtune.engine.io.numbers import MOST_INTEGER, checked, shown
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import fields_of, workload_of

T = TypeVar("T")
_Function = Callable[[Any], Any]
_WORDS = {str: "text", bool: "true or false", Value: "a number, a truth value or text"}


class Malformed(ValueError):  # noqa: N818 (the name says what is wrong)
    """JSON that no record is written as; the message gives path, value and what is expected."""


def encoded(record: object, kind: object = None) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON value of a record, or of a value of type `kind`."""
    return _encoder(type(record) if kind is None else kind)(record)


def decoded(kind: type[T], value: object, *, further: bool = False) -> T:
    """Return the value of type `kind` that `encoded` wrote; a part that is decoded already stays.

    A field that is missing has its default. `further` ignores fields that no record has.

    Raises:
        Malformed: the value is no such record; the message begins with the path inside it, `rows[0].lead`.
    """
    try:
        found: T = _decoder(kind, further)(value)  # type: ignore[arg-type] # a type is hashable
    except Malformed as error:
        text = str(error)
        raise Malformed(f"it{text}" if text.startswith(" ") else text.lstrip(".:= ")) from None
    return found


def _hints(kind: type) -> list[tuple[Field[Any], Any]]:
    """Return the fields of a record that are in JSON, each with its type."""
    hints = get_type_hints(kind)
    return [(field, hints[field.name]) for field in fields(kind) if field.metadata.get("json", True)]


@cache
def _encoder(kind: Any) -> _Function:  # noqa: ANN401 (a type)
    kinds, origin = get_args(kind), get_origin(kind)
    if origin is not None or NoneType in kinds:
        parts = [_encoder(part) for part in kinds if part not in (..., NoneType)]
        if NoneType in kinds:
            return lambda value: None if value is None else parts[0](value)
        if origin is Mapping:
            return lambda values: {name: parts[1](value) for name, value in values.items()}
        return lambda values: [part(value) for part, value in zip(cycle(parts), values, strict=False)]
    if issubclass(kind, Workload):
        return fields_of
    if is_dataclass(kind) and isinstance(kind, type) and kind is not Toolchain:
        written = [(f.name, _encoder(t), f.default if "sparse" in f.metadata else MISSING) for f, t in _hints(kind)]
        return lambda record: {
            name: part(value) for name, part, default in written if (value := getattr(record, name)) != default
        }
    if issubclass(kind, Enum):
        return lambda member: member.value
    if kind is Toolchain:
        return lambda toolchain: [*map(list, toolchain.versions)]
    return {Config: dict, float: float}.get(kind, lambda value: value)


@cache
def _decoder(kind: Any, further: bool, bounds: tuple[tuple[str, float], ...] = ()) -> _Function:  # noqa: ANN401
    kinds, origin = get_args(kind), get_origin(kind)
    if kind in _WORDS:
        return partial(_instance, kind)
    if origin is not None or NoneType in kinds:
        parts = [_decoder(part, further, bounds) for part in kinds if part not in (..., NoneType)]
        if NoneType in kinds:
            return lambda value: None if value is None else parts[0](value)
        if origin is Mapping:
            return partial(_mapping, parts[1])
        return partial(_tuple, parts, ... in kinds, kinds[0] is float and not bounds)
    if kind in (int, float):
        return _number(kind, **dict(bounds))
    if issubclass(kind, Enum):
        return partial(_member, {member.value: member for member in kind})
    if issubclass(kind, Workload):
        return _workload
    return {Config: _config, Toolchain: _toolchain}.get(kind) or _record_decoder(kind, further=further)


def _record_decoder(kind: type, *, further: bool) -> _Function:
    parts, required, has_fault = {}, set(), hasattr(kind, "fault")
    for field, hint in _hints(kind):
        bounds = tuple(item for item in field.metadata.items() if item[0] in ("above", "least", "most"))
        parts[field.name] = _decoder(hint, further, bounds)
        if field.default is MISSING and field.default_factory is MISSING:
            required.add(field.name)

    def decode(value: object) -> object:
        if isinstance(value, kind):
            return value
        record, found, name = _object(value), {}, ""
        try:
            for name, item in record.items():
                if name in parts:
                    found[name] = parts[name](item)
        except Malformed as error:
            raise Malformed(f".{name}{error}") from None
        if len(found) < len(record) and not further:
            unknown = min(record.keys() - parts.keys())
            raise Malformed(f" has the unknown field {shown(unknown)}; known: {', '.join(sorted(parts))}")
        if not required <= found.keys():
            raise Malformed(f" lacks the field {min(required - found.keys())!r}")
        try:
            made = kind(**found)
        except UsageError as error:
            raise Malformed(f": {error}") from None
        if has_fault and made.fault:
            raise Malformed(f": {made.fault}")
        return made

    return decode


def _tuple(parts: list[_Function], some: bool, floats: bool, value: object) -> tuple[Any, ...]:
    if not isinstance(value, list) or not (some or len(value) == len(parts)):
        raise Malformed(f"={shown(value)} is not a list{'' if some else f' of {len(parts)} values'}")
    if some and floats and {*map(type, value)} == {float} and isfinite(sum(value)):
        return tuple(value)  # the samples of a measurement, in a tenth of the time
    return tuple(_each(zip(count(), cycle(parts), value, strict=False)))


def _each(items: Iterable[tuple[str | int, _Function, Any]]) -> list[Any]:
    """Return the decoded items, each given with its name or position, decoder and JSON value."""
    found = []
    for place, decode, value in items:
        try:
            found.append(decode(value))
        except Malformed as error:
            path = f".{place}" if isinstance(place, str) and place.isidentifier() else f"[{shown(place)}]"
            raise Malformed(f"{path}{error}") from None
    return found


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"={shown(value)} is not an object")
    return value


def _mapping(decode: _Function, value: object) -> dict[str, Any]:
    record = _object(value)
    return dict(zip(record, _each((name, decode, item) for name, item in record.items()), strict=True))


def _workload(value: object) -> Workload:
    try:
        return value if isinstance(value, Workload) else workload_of(_mapping(partial(_instance, str), value))
    except UsageError as error:
        raise Malformed(f": {error}") from None


def _config(value: object) -> Config:
    return value if isinstance(value, Config) else Config(_mapping(partial(_instance, Value), value))


def _toolchain(value: object) -> Toolchain:
    pairs = _decoder(tuple[tuple[str, str], ...], further=False)
    return value if isinstance(value, Toolchain) else Toolchain(pairs(value))


def _member(members: Mapping[str, Enum], value: object) -> Enum:
    if not isinstance(value, str) or value not in members:
        raise Malformed(f"={shown(value)} is not one of {', '.join(members)}")
    return members[value]


def _instance(kind: Any, value: object) -> object:  # noqa: ANN401 (a type)
    if not isinstance(value, kind):
        raise Malformed(f"={shown(value)} is not {_WORDS[kind]}")
    return value


def _number(kind: type[Any], **bounds: float) -> _Function:
    largest = MOST_INTEGER if kind is int else float_info.max
    above, least, most = bounds.get("above", nan), bounds.get("least", -largest), bounds.get("most", largest)

    def decode(value: Any) -> Any:  # noqa: ANN401 (JSON, and a number)
        if type(value) is kind and not value <= above and least <= value <= most:
            return value
        return checked(value, "", kind, **bounds, error=Malformed)

    return decode
