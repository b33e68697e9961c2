"""A point of a search space, and the parameters that span it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, ValuesView
from dataclasses import dataclass
from functools import cached_property

__all__ = ["Config", "Param", "Value"]

Value = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a space."""

    name: str
    """The name the kernel gives it, `BLOCK_M`."""
    values: tuple[Value, ...]
    """Every value it may take, each once; in ascending order when `ordered`."""
    ordered: bool = True
    """Whether neighbouring values behave alike, so that a step along `values` is a small change."""


class Config(Mapping[str, Value]):
    """One choice for every parameter: immutable, hashable, picklable.

    Its canonical JSON has sorted keys and no spaces, so equal configs have equal text and equal digests on every
    machine.
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        """Copy `values`."""
        self._values = dict(sorted(values.items()))

    def __getitem__(self, name: str) -> Value:
        """The value of one parameter."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """Parameter names, sorted."""
        return iter(self._values)

    def __len__(self) -> int:
        """Number of parameters."""
        return len(self._values)

    def values(self) -> ValuesView[Value]:
        """In the names' order; ten times as fast as `Mapping` does it, and searches read hundreds of thousands."""
        return self._values.values()

    def __hash__(self) -> int:
        """Equal for equal configs; for dictionaries only, use `digest` to store."""
        return hash(self.json)

    def __eq__(self, other: object) -> bool:
        """Same parameters, same values."""
        return isinstance(other, Config) and self.json == other.json

    def __repr__(self) -> str:
        """`Config(BLOCK_K=64, BLOCK_M=128)`."""
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"

    def integer(self, name: str) -> int:
        """The value of an integer parameter.

        Raises:
            TypeError: the parameter is not an integer.
        """
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not an integer")
        return value

    @cached_property
    def json(self) -> str:
        """Canonical JSON text."""
        return json.dumps(self._values, separators=(",", ":"))

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 16 hexadecimal digits."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Read canonical JSON back."""
        return cls(json.loads(text))
