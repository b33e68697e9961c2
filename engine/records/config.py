"""Configs, and the parameters that span their space."""

from __future__ import annotations

import hashlib
import json
from collections.abc import ItemsView, Iterator, Mapping, Sequence, ValuesView
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, product
from math import isfinite

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


def params_fault(params: Sequence[Param]) -> str:
    """Return in a line why no space has these parameters, with the way out; empty for none."""
    by_name = {param.name: param for param in params}
    if nameless := [name for name in by_name if not isinstance(name, str) or not name]:
        return f"a parameter has no name but {nameless[0]!r}; name it by a text"
    if len(by_name) < len(params):
        return f"two params of one name among {', '.join(param.name for param in params)}; rename one"
    for param in params:
        if fault := _values_fault(param.values, param.ordered) or _where_fault(param, by_name):
            return f"parameter {param.name}{fault}"
    return ""


def _values_fault(values: Sequence[Value], ordered: bool) -> str:
    if not values:
        return " has no value; give at least one"
    seen = set[Value]()
    for value in values:
        if not isinstance(value, bool | int | float | str) or (isinstance(value, float) and not isfinite(value)):
            return f": value {value!r} is no finite number, text or truth value; leave it out"
        if value in seen:
            return f" has value {value!r} twice; give each value once"
        seen.add(value)
    for one, after in pairwise(values if ordered else ()):
        if isinstance(one, str) != isinstance(after, str) or one > after:  # type: ignore[operator] # both are texts
            return f" is ordered and not ascending: {after!r} follows {one!r}; sort its values, or say ordered=False"
    return ""


def _where_fault(param: Param, by_name: Mapping[str, Param]) -> str:
    match param.where:
        case None:
            return ""
        case (str(name), tuple(few)) if few and name != param.name and name in by_name:
            foreign = [value for value in few if value not in by_name[name].values]
            return f" counts where {name} is {foreign[0]!r}, which is none of its values" if foreign else ""
    return f" has where={param.where!r}; name another parameter and some of its values: where=('pipelined', (True,))"


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
