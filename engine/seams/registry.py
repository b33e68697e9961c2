"""Registry that finds plug-ins by name through Python entry points, gemmtune's own included."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points

from gemmtune.engine.records.errors import ContractError, UnknownPlugin
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space

__all__ = ["exporter", "look_up", "name_of", "names", "objective", "pruner", "sampler", "space"]

_KINDS: dict[type, str] = {
    Space: "space",
    Objective: "objective",
    Sampler: "sampler",
    Pruner: "pruner",
    Exporter: "exporter",
}


def names(kind: type) -> tuple[str, ...]:
    """Return the sorted names of the plug-ins of one seam, for example `names(Space)`."""
    return tuple(sorted({point.name for point in _points(kind)}))


def look_up(kind: type, name: str) -> EntryPoint:
    """Return the entry point of a plug-in without loading it.

    Raises:
        UnknownPlugin: no plug-in of the seam has that name; the message lists the known names.
    """
    for point in _points(kind):
        if point.name == name:
            return point
    raise UnknownPlugin(f"no {_KINDS[kind]} {name!r}; known: {', '.join(names(kind))}")


def name_of(plugin: type) -> str:
    """Return the name that a plug-in class is registered under, or the class's own name."""
    value = f"{plugin.__module__}:{plugin.__qualname__}"
    kinds = (kind for kind in _KINDS if issubclass(plugin, kind))
    return next((point.name for kind in kinds for point in _points(kind) if point.value == value), plugin.__qualname__)


def space(name: str) -> Space:
    """Create the space of that name; raises like `look_up`."""
    plugin: type[Space] = _load(Space, name)
    return plugin()


def objective(name: str) -> Objective:
    """Create the objective of that name; raises like `look_up`."""
    plugin: type[Objective] = _load(Objective, name)
    return plugin()


def sampler(name: str) -> type[Sampler]:
    """Return the sampler class of that name; raises like `look_up`."""
    plugin: type[Sampler] = _load(Sampler, name)
    return plugin


def pruner(name: str) -> Pruner:
    """Create the pruner of that name; raises like `look_up`."""
    plugin: type[Pruner] = _load(Pruner, name)
    return plugin()


def exporter(name: str) -> Exporter:
    """Create the exporter of that name; raises like `look_up`."""
    plugin: type[Exporter] = _load(Exporter, name)
    return plugin()


def _points(kind: type) -> tuple[EntryPoint, ...]:
    return tuple(entry_points(group=f"gemmtune.{_KINDS[kind]}s"))


def _load(kind: type, name: str) -> type:
    point = look_up(kind, name)
    plugin: object = point.load()
    if not (isinstance(plugin, type) and issubclass(plugin, kind)):
        raise ContractError(f"{_KINDS[kind]} {name!r} ({point.value}) is not a subclass of {kind.__qualname__}")
    return plugin
