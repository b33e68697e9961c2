"""Registry that finds plug-ins by name through Python entry points, gemmtune's own included."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import TypeVar

from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.io.numbers import shown
from gemmtune.engine.io.printing import one_line
from gemmtune.engine.records.errors import ContractError, ToolchainMissing, UnknownPlugin, UsageError, did_you_mean
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.seams.workload import WorkloadKind

_Plugin = TypeVar("_Plugin")
_ADOPTED: dict[tuple[type, str], type] = {}
"""Classes that no package registers, by seam and name."""


def names(kind: type) -> tuple[str, ...]:
    """Return the sorted names of the plug-ins of one seam, for example `names(Space)`."""
    return tuple(sorted({point.name for point in _points(kind)}))


def look_up(kind: type, name: str) -> EntryPoint:
    """Return the entry point of a plug-in without loading it.

    Raises:
        UnknownPlugin: no plug-in of the seam has that name; the message lists the known names.
        ContractError: several have it.
    """
    if adopted := _ADOPTED.get((kind, name)):
        return EntryPoint(name, f"{adopted.__module__}:{adopted.__qualname__}", "")
    found = {point.value: point for point in _points(kind) if point.name == name}
    if len(found) > 1:
        both = " and ".join(f"{value} ({_distribution(point)})" for value, point in found.items())
        raise ContractError(f"two {_noun(kind)}s are named {name!r}: {both}; rename or uninstall one")
    for point in found.values():
        return point
    known = names(kind)
    raise UnknownPlugin(f"no {_noun(kind)} {name!r}; {did_you_mean(name, known)}known: {', '.join(known)}")


def adopt(kind: type, plugin: type) -> str:
    """Make a class known in this process by its own name, and return that; a registered one keeps its name.

    Raises:
        UsageError: the class is of another seam, or its name is another plug-in's.
    """
    if not (isinstance(plugin, type) and issubclass(plugin, kind)):
        raise UsageError(f"{plugin!r} is not a subclass of gemmtune.{kind.__name__}")
    name = plugin.__qualname__.rpartition(".")[2]
    for point in _points(kind):
        if point.value == f"{plugin.__module__}:{plugin.__qualname__}":
            return point.name
        if point.name == name:
            raise UsageError(f"{_noun(kind)} {name!r} is registered as {point.value}: give the class another name")
    known = _ADOPTED.get((kind, name))
    if known is not None and known.__module__ != plugin.__module__:
        raise UsageError(f"{_noun(kind)} {name!r} is {known.__module__}:{name} already: give one class another name")
    _ADOPTED[kind, name] = plugin
    return name


def require_registered(kind: type, names: Iterable[str]) -> None:
    """Refuse classes that only this process knows, where other processes look plug-ins up by name.

    Raises:
        UsageError: one is such a class; the message says how to register it.
    """
    for name in names:
        if (kind, name) in _ADOPTED:
            known = f"{_noun(kind)} {name!r} is a class of this process, and builders are others"
            raise UsageError(f"{known}: register it under gemmtune.{_noun(kind)}s, or name recorded landscapes of it")


def describe(kind: type, name: str) -> dict[str, str]:
    """Return a plug-in's class, what it needs where its seam says so, and the first sentence of its documentation."""
    point = look_up(kind, name)
    try:
        plugin: type = _loaded(kind, point)
    except (ContractError, ToolchainMissing) as error:
        return {"class": point.value, "needs": "-", "meaning": str(error)}
    needs = {"needs": ", ".join(plugin.needs) or "-"} if hasattr(plugin, "needs") else {}
    sentence = " ".join((plugin.__doc__ or "-").split("\n\n")[0].split())
    return {"class": point.value, **needs, "meaning": sentence}


def name_of(sampler: type[Sampler]) -> str:
    """Return the name that a sampler class is registered under, or the class's own name."""
    value = f"{sampler.__module__}:{sampler.__qualname__}"
    return next((point.name for point in _points(Sampler) if point.value == value), sampler.__qualname__)


def space(name: str) -> Space:
    """Create the space of that name; raises like `look_up`."""
    return _create(Space, name)  # type: ignore[type-abstract]


def preload(spaces: Iterable[str]) -> list[str]:
    """Return the modules that builders of these spaces import beforehand, each once; raises like `look_up`."""
    return list(dict.fromkeys(module for name in spaces for module in space(name).preload))


def objective(name: str) -> Objective:
    """Create the objective of that name; raises like `look_up`."""
    return _create(Objective, name)  # type: ignore[type-abstract]


def sampler(name: str) -> type[Sampler]:
    """Return the sampler class of that name; raises like `look_up`."""
    return _loaded(Sampler, look_up(Sampler, name))  # type: ignore[type-abstract]


def pruner(name: str) -> Pruner:
    """Create the pruner of that name; raises like `look_up`."""
    return _create(Pruner, name)  # type: ignore[type-abstract]


def exporter(name: str) -> Exporter:
    """Create the exporter of that name; raises like `look_up`, and where it names what it runs in no tuple."""
    found = _create(Exporter, name)  # type: ignore[type-abstract]
    for field in ("workloads", "spaces"):
        held = getattr(found, field)
        if not (isinstance(held, tuple) and all(isinstance(each, str) for each in held)):
            raise ContractError(f"exporter {name!r} is broken: {field}={shown(held)} is not a tuple of names")
    return found


def workload(name: str) -> WorkloadKind[Workload]:
    """Create the plug-in of that kind of workload; raises like `look_up`."""
    return _create(WorkloadKind, name)  # type: ignore[type-abstract]


def packages() -> frozenset[str]:
    """Return the names of the packages that plug-ins are from."""
    groups = map(_points, (Exporter, Objective, Pruner, Sampler, Space, WorkloadKind))
    return frozenset(point.module.partition(".")[0] for points in groups for point in points)


def _noun(kind: type) -> str:
    return "workload" if kind is WorkloadKind else kind.__name__.lower()


def _distribution(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an unknown package"


def _points(kind: type) -> Iterable[EntryPoint]:
    """Return the entry points of one seam; they are read again after a folder of packages has changed."""
    folders = tuple((folder, _changed_at(folder)) for folder in sys.path)
    return _by_group(entry_points, folders).get(f"gemmtune.{_noun(kind)}s", ())


@lru_cache(1)  # reading the metadata of every installed package takes 10 ms
def _by_group(
    read: Callable[[], EntryPoints], folders: tuple[tuple[str, int | None], ...]
) -> dict[str, tuple[EntryPoint, ...]]:
    found = read()
    return {group: tuple(found.select(group=group)) for group in found.groups if group.startswith("gemmtune.")}


def _changed_at(folder: str) -> int | None:
    """Return the time of a folder's last change in nanoseconds; None where there is no folder."""
    try:
        return os.stat(folder or os.curdir).st_mtime_ns
    except OSError:
        return None


def _create(kind: type[_Plugin], name: str) -> _Plugin:
    point = look_up(kind, name)
    plugin = _loaded(kind, point)
    with _blaming(kind, point):
        return plugin()


def _loaded(kind: type[_Plugin], point: EntryPoint) -> type[_Plugin]:
    with _blaming(kind, point):
        plugin: object = _ADOPTED.get((kind, point.name)) or point.load()
    if not (isinstance(plugin, type) and issubclass(plugin, kind)):
        raise ContractError(f"{_noun(kind)} {point.name!r} ({point.value}) is not a subclass of {kind.__qualname__}")
    return plugin


@contextmanager
def _blaming(kind: type, point: EntryPoint) -> Iterator[None]:
    """Name the plug-in whose code fails in the block."""
    try:
        yield
    except (ToolchainMissing, *STOPS):
        raise
    except BaseException as error:  # a third party's
        broken = f"{_noun(kind)} {point.name!r} ({point.value} of {_distribution(point)}) cannot be loaded"
        reason = one_line(account(error, packages()))
        raise ContractError(f"{broken}: {reason}; repair or uninstall it") from error
