"""Configs, and the parameters that span their space."""

from __future__ import annotations

import hashlib
import json
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from functools import cached_property
from itertools import product

Value = bool | int | float | str
"""Value of a parameter in a config."""
_compact_json = json.JSONEncoder(separators=(",", ":")).encode


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of a space, with its values.

    Example:
        >>> import gemmtune as gt
        >>> gt.Param("BLOCK_M", (16, 32, 64)).values
        (16, 32, 64)
    """

    name: str
    """Name that the kernel uses, `BLOCK_M`."""
    values: tuple[Value, ...]
    """Values it may take, each once, ascending if `ordered`."""
    ordered: bool = True
    """Whether neighbouring values behave alike, so that a step along `values` is a small change."""
    where: tuple[str, tuple[Value, ...]] | None = None
    """Another parameter and its values with which this one counts: `("pipelined", (True,))`; None for always.

    Where it does not count, configs have its first value alone, so that none is searched twice.
    """

    def agrees_with(self, values: Mapping[str, Value]) -> bool:
        """Return whether this parameter counts beside the values of the others, or has its first value."""
        return self.where is None or values[self.where[0]] in self.where[1] or values[self.name] == self.values[0]


def spanned(params: Sequence[Param]) -> Iterator[Config]:
    """Yield the configs that parameters span: the product of their values, those that do not count at their first."""
    names = [param.name for param in params]
    some = [param for param in params if param.where is not None]
    for values in product(*(param.values for param in params)):
        found = dict(zip(names, values, strict=True))
        if all(param.agrees_with(found) for param in some):
            yield Config(found)


class Config(Mapping[str, Value]):
    """One value per parameter, as an immutable, hashable and picklable mapping, sorted by name.

    Its canonical JSON has no spaces, so equal configs have equal text and equal digests on every machine.

    Example:
        >>> import gemmtune as gt
        >>> gt.Config({"num_warps": 4, "BLOCK_M": 64}).json
        '{"BLOCK_M":64,"num_warps":4}'
    """

    def __init__(self, values: Mapping[str, Value]) -> None:
        self._values = dict(sorted(values.items()))

    def __getitem__(self, name: str) -> Value:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def items(self) -> ItemsView[str, Value]:
        """Return the names with their values in the order of the names, faster than `Mapping` does."""
        return self._values.items()

    def values(self) -> ValuesView[Value]:
        """Return the values in the order of the names, faster than `Mapping` does."""
        return self._values.values()

    def __hash__(self) -> int:
        """Hash the canonical JSON, for dictionaries only; store `digest` instead."""
        return hash(self.json)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self.json == other.json

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{k}={v!r}' for k, v in self._values.items())})"

    def integer(self, name: str) -> int:
        """Return the value of an integer parameter.

        Raises:
            TypeError: the parameter is not an integer.
        """
        value = self._values[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{name}={value!r} is not an integer")
        return value

    @cached_property
    def json(self) -> str:
        """Canonical JSON text of the config."""
        return _compact_json(self._values)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON, 16 hexadecimal digits."""
        return hashlib.sha256(self.json.encode()).hexdigest()[:16]

    @classmethod
    def from_json(cls, text: str) -> Config:
        """Parse the JSON text of a config."""
        return cls(json.loads(text))


def values_text(values: Mapping[str, object]) -> str:
    """Return values as text in their order, with a space between two: `BLOCK_M=64 num_warps=4`."""
    return " ".join(f"{name}={value}" for name, value in values.items())
