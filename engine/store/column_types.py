"""Column types that store records and other values as text."""

import json
from collections.abc import Callable
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, TypeVar

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import DeviceState, Estimate
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.codec import decoded, encoded

_T = TypeVar("_T")
_raw_decode = json.JSONDecoder().raw_decode
compact_json = json.JSONEncoder(separators=(",", ":")).encode
"""Return JSON without spaces, for a value: an encoder that is made once, as `json.dumps` makes one per call."""

DECODING_ERRORS = ValueError, RecursionError
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


def cell(kind: type[_T]) -> AsText[_T]:
    """Return the column type of values that are stored as JSON; what an older row lacks has its default."""
    return AsText(lambda value: compact_json(encoded(value, kind)), lambda text: decoded(kind, decode_json(text)))


def remembered(stored: AsText[_T], values: int) -> AsText[_T]:
    """Return a column type for few values in many rows: as many as `values` are converted once."""
    return AsText(lru_cache(values)(stored.encode), lru_cache(values)(stored.decode))


def storable_estimate(estimate: Estimate) -> Estimate:
    """Return the estimate with a reason that databases take."""
    return replace(estimate, stopped=storable(estimate.stopped)) if estimate.stopped else estimate


PROBLEM = remembered(cell(Workload), 2**12)  # type: ignore[type-abstract] # the plug-in of its kind makes it
_COMPARED = [each.name for each in fields(Device) if each.compare]
DEVICE = remembered(AsText(lambda d: compact_json({n: getattr(d, n) for n in _COMPARED}), cell(Device).decode), 2**7)
TOOLCHAIN = remembered(cell(Toolchain), 2**12)
ESTIMATE = AsText(lambda estimate: compact_json(encoded(storable_estimate(estimate))), cell(Estimate).decode)
DEVICE_STATE = cell(DeviceState)
RESOURCES = remembered(cell(Resources), 2**12)
