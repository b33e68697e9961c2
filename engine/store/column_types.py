"""Column types that store records and other values as text."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from math import isfinite
from sys import float_info
from types import UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.measurement import DeviceState, Estimate, ReferenceLevel
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import fields_of, workload_of

_T = TypeVar("_T")
_raw_decode = json.JSONDecoder().raw_decode


DECODING_ERRORS = ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError, UsageError
"""Errors that decoding a damaged text may raise."""


class AsText(TypeDecorator[_T]):
    """Column type that encodes values as text; None is NULL. Equal values need equal text.

    Rows are read as texts, see `schema.stored`: one that cannot be decoded must not fail the others.
    """

    impl = Text
    cache_ok = True

    def __init__(self, encode: Callable[[_T], str], decode: Callable[[str], _T]) -> None:
        """Keep both functions; SQLAlchemy's statement cache tells types apart by these attributes."""
        super().__init__()
        self.encode = encode
        self.decode = decode

    def process_bind_param(self, value: _T | None, dialect: Dialect) -> str | None:
        """Return the text to store."""
        return None if value is None else self.encode(value)


def compact_json(value: object) -> str:
    """Return JSON without spaces."""
    return json.dumps(value, separators=(",", ":"))


def decode_json(text: str) -> Any:  # noqa: ANN401 (JSON)
    """Return the value of JSON without white space around it, in half the time of `json.loads`.

    Raises:
        ValueError: the text is something else.
    """
    value, end = _raw_decode(text)
    if end != len(text):
        raise ValueError(f"{text[:100]!r} is not one JSON value")
    return value


def storable(text: str) -> str:
    """Escape bytes that are no text and NUL, which databases refuse; messages of compilers and drivers hold them."""
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def toolchain_of(versions: list[list[str]]) -> Toolchain:
    """Return the toolchain of pairs of package and version."""
    return Toolchain(tuple((_text(package), _text(version)) for package, version in versions))


def numbers_of(values: list[float]) -> tuple[float, ...]:
    """Return finite numbers from JSON.

    Raises:
        ValueError: a number is not finite.
        TypeError: a value is not a number.
    """
    if not isfinite(sum(values)):
        raise ValueError(f"{values} are not finite numbers")
    return tuple(values)


def config_of(values: Mapping[str, Value]) -> Config:
    """Return the config of values from JSON.

    Raises:
        TypeError: a value is neither a number, a truth value nor a text.
    """
    if not all(isinstance(value, Value) for value in values.values()):
        raise TypeError(f"{values} is not a config")
    return Config(values)


def estimate_fields(estimate: Estimate) -> dict[str, object]:
    """Return the fields for JSON, without `level` and `stopped` where they are empty, as in older rows."""
    found = asdict(estimate) | {"stopped": storable(estimate.stopped)}
    return {name: value for name, value in found.items() if value not in (None, "")}


def estimate_of(found: Mapping[str, Any]) -> Estimate:
    """Return the estimate of fields from JSON.

    Raises:
        ValueError: the time is not above 0 and finite, or lies outside its interval.
        TypeError: a field is unknown or missing, or has another type.
    """
    level = found.get("level")
    made = Estimate(**{**found, "level": None if level is None else ReferenceLevel(**level)})
    if not 0 < made.low_ns <= made.time_ns <= made.high_ns <= float_info.max:
        raise ValueError(f"time_ns={made.time_ns} is not in low_ns={made.low_ns} to high_ns={made.high_ns} above 0")
    _text(made.stopped)
    if made.level is not None and not 0 < made.level.time_ns <= float_info.max:
        raise ValueError(f"time_ns={made.level.time_ns} of the reference is not a number above 0")
    return made


def _text(value: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


@lru_cache
def _device_text(device: Device) -> str:
    return compact_json({f.name: getattr(device, f.name) for f in fields(device) if f.compare})


def _state_text(state: DeviceState) -> str:
    """Return the fields as JSON, without an empty `driver`, as in older rows."""
    return compact_json({name: value for name, value in asdict(state).items() if value != ""})


def _reader(kind: type[_T]) -> Callable[[str], _T]:
    """Return a function that reads a record from JSON; a field that an older row lacks has its default."""
    kinds = {name: get_origin(hint) or hint for name, hint in get_type_hints(kind).items()}
    kinds = {name: int | None if found is UnionType else found for name, found in kinds.items()}

    def read(text: str) -> _T:
        found = {name: tuple(v) if isinstance(v, list) else v for name, v in decode_json(text).items()}
        for name, value in found.items():
            if not isinstance(value, kinds[name]):
                raise TypeError(f"{name}={value!r} is not of type {kinds[name]}")
        return kind(**found)

    return read


@lru_cache(2**12)  # many rows share few problems
def _problem(text: str) -> Workload:
    return workload_of(decode_json(text))


@lru_cache(2**12)
def _toolchain(text: str) -> Toolchain:
    return toolchain_of(decode_json(text))


@lru_cache(2**12)  # a campaign looks up the tasks of each problem
def _problem_text(problem: Workload) -> str:
    return compact_json(fields_of(problem))


PROBLEM = AsText(_problem_text, _problem)
DEVICE = AsText(_device_text, lru_cache(_reader(Device)))
TOOLCHAIN = AsText(lambda toolchain: compact_json(toolchain.versions), _toolchain)
ESTIMATE = AsText(lambda estimate: compact_json(estimate_fields(estimate)), lambda text: estimate_of(decode_json(text)))
DEVICE_STATE = AsText(_state_text, _reader(DeviceState))
RESOURCES = AsText(lambda resources: compact_json(asdict(resources)), _reader(Resources))
