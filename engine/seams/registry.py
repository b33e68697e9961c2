"""Plug-ins by name, through entry points; our own register the same way."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from gemmtune.engine.records.errors import ContractError, UnknownPlugin
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space

__all__ = ["exporter", "names", "objective", "pruner", "sampler", "space"]

_KINDS: dict[type, str] = {Space: "space", Objective: "objective", Sampler: "sampler", Pruner: "pruner", Exporter: "exporter"}


def names(kind: type) -> tuple[str, ...]:
    """The registered names of one seam (`names(Space)`), sorted."""
    return tuple(sorted({point.name for point in _points(kind)}))


def space(name: str) -> Space:
    """The space of that name.

    Raises:
        UnknownPlugin: there is none; the message lists those there are.
    """
    return _load(Space, name)()


def objective(name: str) -> Objective:
    """The objective of that name; raises as `space` does."""
    return _load(Objective, name)()


def sampler(name: str) -> type[Sampler]:
    """The sampler class of that name; raises as `space` does."""
    return _load(Sampler, name)


def pruner(name: str) -> Pruner:
    """The pruner of that name; raises as `space` does."""
    return _load(Pruner, name)()


def exporter(name: str) -> Exporter:
    """The exporter of that name; raises as `space` does."""
    return _load(Exporter, name)()


def _points(kind: type) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"gemmtune.{_KINDS[kind]}s"))


_T = TypeVar("_T")


def _load(kind: type[_T], name: str) -> type[_T]:
    for point in _points(kind):
        if point.name == name:
            plugin: object = point.load()
            if not (isinstance(plugin, type) and issubclass(plugin, kind)):
                raise ContractError(f"{_KINDS[kind]} {name!r} ({point.value}) is not a subclass of {kind.__qualname__}")
            return plugin
    raise UnknownPlugin(f"no {_KINDS[kind]} {name!r}; known: {', '.join(names(kind))}")
