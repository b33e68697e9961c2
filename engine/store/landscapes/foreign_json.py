"""What the JSON files of other auto-tuners have in common."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.errors import LandscapeError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.store.landscapes.cells import file_stem
from gemmtune.engine.store.landscapes.reader import seen_param

__all__ = ["config_of", "landscape_of", "listing", "number", "table"]


def table(where: str, found: object) -> Mapping[str, object]:
    """The members of a JSON object.

    Raises:
        LandscapeError: it is something else; the message begins with `where`.
    """
    if not isinstance(found, Mapping):
        raise LandscapeError(f"{where}: expected an object, found {found!r}")
    return found


def listing(where: str, found: object) -> Sequence[object]:
    """The members of a JSON array; raises as `table` does."""
    if not isinstance(found, list):
        raise LandscapeError(f"{where}: expected an array, found {found!r}")
    return found


def number(where: str, found: object, *, above: float = -math.inf) -> float:
    """A finite number above a bound; raises as `table` does."""
    if isinstance(found, bool) or not isinstance(found, int | float) or not above < found < math.inf:
        bound = "" if above == -math.inf else f" above {above:g}"
        raise LandscapeError(f"{where}: expected a number{bound}, found {found!r}")
    return float(found)


def config_of(where: str, values: Mapping[str, object]) -> Config:
    """A config of plain values.

    Raises:
        LandscapeError: a value is neither a truth value, a number nor a text.
    """
    plain: dict[str, Value] = {}
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise LandscapeError(f"{where}, {name}: expected true, false, a number or a text, found {value!r}")
        plain[name] = value
    return Config(plain)


def landscape_of(
    file: Path, names: Sequence[str], points: Iterable[Point], context: Mapping[str, str] | None = None
) -> Landscape:
    """One task out of a file, and named by it. Of a config that comes again, the first counts.

    A tuner that comes by a config again writes it again, and says that this cost nothing.

    Raises:
        LandscapeError: there is no point, no parameter, or a point with other parameters.
    """
    found: dict[Config, Point] = {}
    for point in points:
        if set(point.config) != set(names):
            raise LandscapeError(f"{file}: {point.config} does not have the parameters {', '.join(names) or 'of any'}")
        found.setdefault(point.config, point)
    if not found or not names:
        raise LandscapeError(f"{file} holds no config; a landscape has at least one, with at least one parameter")
    params = tuple(seen_param(name, found) for name in names)
    return Landscape(file_stem(file), str(file), params, found, context=dict(context or {}))
