"""Column types that store records and other values as text."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import DeviceState, Estimate, ReferenceLevel
from gemmtune.engine.records.problem import Problem

__all__ = [
    "DEVICE",
    "DEVICE_STATE",
    "ESTIMATE",
    "PROBLEM",
    "RESOURCES",
    "TOOLCHAIN",
    "AsText",
    "compact_json",
    "decode_json",
    "estimate_fields",
    "estimate_of",
    "storable",
    "toolchain_of",
]

_T = TypeVar("_T")
_raw_decode = json.JSONDecoder().raw_decode


class AsText(TypeDecorator[_T]):
    """Column type that encodes values as text; None is NULL. Equal values need equal text."""

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

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[str | None], _T | None]:
        """Return the function that reads a stored text; `process_result_value` would be called through two others."""
        decode = self.decode
        return lambda text: None if text is None else decode(text)


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
    return Toolchain(tuple((package, version) for package, version in versions))


def estimate_fields(estimate: Estimate) -> dict[str, object]:
    """Return the fields for JSON, without `level` and `stopped` where they are empty, as in older rows."""
    found = asdict(estimate) | {"stopped": storable(estimate.stopped)}
    return {name: value for name, value in found.items() if value not in (None, "")}


def estimate_of(found: Mapping[str, Any]) -> Estimate:
    """Return the estimate of fields from JSON."""
    level = found.get("level")
    return Estimate(**{**found, "level": None if level is None else ReferenceLevel(**level)})


def _device_text(device: Device) -> str:
    return compact_json({f.name: getattr(device, f.name) for f in fields(device) if f.compare})


def _record_text(record: DeviceState | Resources) -> str:
    return compact_json(asdict(record))


def _reader(kind: Callable[..., _T]) -> Callable[[str], _T]:
    """Return a function that reads a record from JSON; a field that an older row lacks has its default."""

    def read(text: str) -> _T:
        found = decode_json(text).items()
        return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in found})

    return read


@lru_cache(2**12)  # many rows share few problems
def _problem(text: str) -> Problem:
    return Problem.from_fields(decode_json(text))


@lru_cache(2**12)
def _toolchain(text: str) -> Toolchain:
    return toolchain_of(decode_json(text))


PROBLEM = AsText(lambda problem: compact_json(problem.to_fields()), _problem)
DEVICE = AsText(_device_text, lru_cache(_reader(Device)))
TOOLCHAIN = AsText(lambda toolchain: compact_json(toolchain.versions), _toolchain)
ESTIMATE = AsText(lambda estimate: compact_json(estimate_fields(estimate)), lambda text: estimate_of(decode_json(text)))
DEVICE_STATE = AsText(_record_text, _reader(DeviceState))
RESOURCES = AsText(_record_text, _reader(Resources))
