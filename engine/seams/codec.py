"""One codec between frozen records and JSON values: each field under its name in code, checked by its type.

| in code | in JSON |
|---|---|
| record | object of its fields |
| Workload | object of texts, which the plug-in of its kind reads |
| Config | object of truth values, numbers and texts |
| Toolchain | list of pairs of package and version |
| tuple | list |
| Mapping | object |
| Enum | value of the member |

A field's metadata refine this:

| metadata | meaning |
|---|---|
| `above`, `least`, `most` | bounds of the field's numbers, as in `io.numbers.checked` |
| `sparse` | field left out of JSON where it has its default, as in files from before the field was there |
| `json`: False | field never in JSON |

Nothing is coerced but whole numbers in fields of floats, and no name in JSON is ever imported. A record with a property
`fault` is refused for the reason that it gives.
"""

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import MISSING, Field, fields, is_dataclass
from enum import Enum, StrEnum
from functools import cache, partial
from itertools import count, cycle
from math import isfinite, nan
from sys import float_info
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

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


class Fields(StrEnum):
    """Fields that the object of a record may have."""

    EXACT = "exact"
    """Every field and no other."""
    KNOWN = "known"
    """No other field; one that is missing has its default."""
    ANY = "any"
    """Further fields, which are ignored; one that is missing has its default."""


def encoded(record: object, kind: object = None) -> Any:  # noqa: ANN401 (JSON)
    """Return the JSON value of a record, or of a value of type `kind`."""
    return _encoder(type(record) if kind is None else kind)(record)


def decoded(kind: type[T], value: object, allowed: Fields = Fields.KNOWN) -> T:
    """Return the value of type `kind` that `encoded` wrote; a record inside that is decoded already stays.

    Raises:
        Malformed: the value is no such record; the message begins with the path inside it, `rows[0].lead`.
    """
    try:
        found: T = _decoder(cast("Any", kind), allowed)(value)
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
    kinds = get_args(kind)
    if NoneType in kinds:
        inner = _encoder(kinds[0])
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is tuple and kinds[-1] is ...:
        each = _encoder(kinds[0])
        return lambda values: [each(value) for value in values]
    if get_origin(kind) is tuple:
        parts = [_encoder(part) for part in kinds]
        return lambda values: [part(value) for part, value in zip(parts, values, strict=True)]
    if get_origin(kind) is Mapping:
        each = _encoder(kinds[1])
        return lambda values: {name: each(value) for name, value in values.items()}
    if issubclass(kind, Workload):
        return fields_of
    if kind is Toolchain:
        return lambda toolchain: list(map(list, toolchain.versions))
    if is_dataclass(kind) and isinstance(kind, type):
        written = [
            (f.name, _encoder(hint), f.default if "sparse" in f.metadata else MISSING) for f, hint in _hints(kind)
        ]
        return lambda record: {
            name: part(value) for name, part, default in written if (value := getattr(record, name)) != default
        }
    if issubclass(kind, Enum):
        return lambda member: member.value
    return {Config: dict, float: float}.get(kind, lambda value: value)


@cache
def _decoder(kind: Any, allowed: Fields, bounds: tuple[tuple[str, float], ...] = ()) -> _Function:  # noqa: ANN401
    kinds = get_args(kind)
    if NoneType in kinds:
        inner = _decoder(kinds[0], allowed, bounds)
        return lambda value: None if value is None else inner(value)
    if get_origin(kind) is tuple:
        return _tuple_decoder([_decoder(each, allowed, bounds) for each in kinds if each is not ...], kinds, bounds)
    if get_origin(kind) is Mapping:
        return partial(_mapping, _decoder(kinds[1], allowed, bounds))
    if kind in _WORDS:
        return partial(_instance, kind)
    if kind in (int, float):
        return _number(kind, **dict(bounds))
    if issubclass(kind, Enum):
        return partial(_member, {member.value: member for member in kind})
    if issubclass(kind, Workload):
        make: _Function = partial(_workload, exact=allowed is Fields.EXACT)
    elif kind is Config:
        make = _config
    elif kind is Toolchain:
        make = _toolchain
    else:
        make = _record_decoder(kind, allowed)
    return lambda value: value if isinstance(value, kind) else make(value)


def _record_decoder(kind: type, allowed: Fields) -> _Function:
    parts, required, has_fault = {}, set(), hasattr(kind, "fault")
    for field, hint in _hints(kind):
        bounds = tuple(item for item in field.metadata.items() if item[0] in ("above", "least", "most"))
        parts[field.name] = _decoder(hint, allowed, bounds)
        has_default = field.default is not MISSING or field.default_factory is not MISSING
        if not has_default or (allowed is Fields.EXACT and "sparse" not in field.metadata):
            required.add(field.name)

    def decode(value: object) -> object:
        record, found, name = _object(value), {}, ""
        try:
            for name, item in record.items():
                if name in parts:
                    found[name] = parts[name](item)
        except Malformed as error:
            raise Malformed(f".{name}{error}") from None
        names = found.keys() if allowed is Fields.ANY else record.keys()
        if len(found) < len(names) or not required <= found.keys():
            _require_fields(names, required, parts.keys())
        try:
            made = kind(**found)
        except UsageError as error:
            raise Malformed(f": {error}") from None
        if has_fault and made.fault:
            raise Malformed(f": {made.fault}")
        return made

    return decode


def _tuple_decoder(parts: list[_Function], kinds: tuple[Any, ...], bounds: object) -> _Function:
    some, unbounded = kinds[-1] is ..., kinds[0] is float and not bounds

    def decode(value: object) -> tuple[Any, ...]:
        if not isinstance(value, list) or not (some or len(value) == len(parts)):
            raise Malformed(f"={shown(value)} is not a list{'' if some else f' of {len(parts)} values'}")
        if some and unbounded and {*map(type, value)} == {float} and isfinite(sum(value)):
            return tuple(value)  # the samples of a measurement, in a tenth of the time
        return tuple(_each(zip(count(), cycle(parts), value, strict=False)))

    return decode


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


def _require_fields(names: Set[str], required: Set[str], known: Set[str]) -> None:
    if unknown := sorted(names - known):
        raise Malformed(f" has the unknown field {shown(unknown[0])}; known: {', '.join(sorted(known))}")
    if missing := sorted(required - names):
        raise Malformed(f" lacks the field {missing[0]!r}")


def _object(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise Malformed(f"={shown(value)} is not an object")
    return value


def _mapping(decode: _Function, value: object) -> dict[str, Any]:
    record = _object(value)
    return dict(zip(record, _each((name, decode, item) for name, item in record.items()), strict=True))


def _workload(value: object, *, exact: bool) -> Workload:
    texts = _mapping(partial(_instance, str), value)
    try:
        made = workload_of(texts)
    except UsageError as error:
        raise Malformed(f": {error}") from None
    if exact:
        _require_fields(texts.keys(), fields_of(made).keys(), fields_of(made).keys())
    return made


def _config(value: object) -> Config:
    return Config(_mapping(partial(_instance, Value), value))


def _toolchain(value: object) -> Toolchain:
    return Toolchain(_decoder(tuple[tuple[str, str], ...], Fields.EXACT)(value))


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
