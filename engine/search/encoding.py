"""Feasible configs as integer vectors, with distances, steps and neighbours."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config, Param, Value

Point = NDArray[np.int16]
"""Level per axis, shape (axes,)."""
Mask = NDArray[np.bool_]
"""Flag per feasible config, shape (configs,)."""
Positions = NDArray[np.intp]
"""Indices into the feasible set."""


class Encoding:
    """Grid that holds the feasible set: one axis per parameter of several values, one level per value that occurs."""

    names: tuple[str, ...]
    """Parameter name of each axis."""
    values: tuple[tuple[Value, ...], ...]
    """Values of each axis in the order of their levels, at least 2."""
    ordered: NDArray[np.bool_]
    """Whether neighbouring levels behave alike, shape (axes,)."""
    points: NDArray[np.int16]
    """Levels of the feasible configs, shape (configs, axes)."""
    configs: list[Config]
    """Feasible configs, in the order of `points`."""

    def __init__(
        self, params: Sequence[Param], feasible: Sequence[Config], may_add: Callable[[Config], object] | None = None
    ) -> None:
        """Encode the feasible set.

        Args:
            params: params of the space.
            feasible: the feasible set, or what was drawn of it.
            may_add: whether `find` may add a config of the levels that occur, behind the others; None for never.

        Raises:
            KeyError: the configs lack a parameter, or have a value that its parameter does not list.
        """
        axes: list[tuple[Param, tuple[Value, ...]]] = []
        columns: list[NDArray[np.int16]] = []
        by_name = values_by_name(feasible)
        for param in params if feasible else ():
            index = {value: i for i, value in enumerate(param.values)}
            column = np.fromiter(map(index.__getitem__, by_name[param.name]), np.int16, len(feasible))
            used, levels = np.unique(column, return_inverse=True)
            if len(used) > 1:
                axes.append((param, tuple(param.values[i] for i in used)))
                columns.append(levels.astype(np.int16))
        self.names = tuple(param.name for param, _ in axes)
        self.values = tuple(values for _, values in axes)
        self.ordered = np.array([param.ordered for param, _ in axes], np.bool_)
        self.points = np.stack(columns, axis=1) if columns else np.empty((len(feasible), 0), np.int16)
        self._rows = self.points  # with room for the configs that are added
        self.configs = list(feasible)
        self._by_config = {config: i for i, config in enumerate(feasible)}
        self._may_add = may_add
        self._refused: set[bytes] = set()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of levels of each axis, at least 2."""
        return tuple(map(len, self.values))

    def position(self, config: Config) -> int:
        """Return the index of a config in the feasible set; raises KeyError if the config is not feasible."""
        return self._by_config[config]

    def find(self, point: Point) -> int | None:
        """Return the index of the config at a point, or None where no feasible config is."""
        key = point.astype(np.int16).tobytes()
        found = self._by_point.get(key)
        return found if found is not None or self._may_add is None or key in self._refused else self._add(point, key)

    def find_all(self, points: NDArray[np.int16]) -> list[int | None]:
        """Return what `find` does for each of many points, shape (points, axes), without an array for each."""
        if self._may_add is not None or not self.names:
            return [self.find(point) for point in points]
        keys, size = points.astype(np.int16).tobytes(), 2 * len(self.names)
        return [self._by_point.get(keys[start : start + size]) for start in range(0, len(keys), size)]

    def steps(self, point: Point, positions: Positions | Sequence[int]) -> NDArray[np.int64]:
        """Count the steps from a point to the configs at `positions`, shape (positions,).

        An ordered axis counts the levels between, an unordered axis counts 1 for a change.
        """
        apart = np.abs(self.points[positions] - point)
        steps: NDArray[np.int64] = np.where(self.ordered, apart, apart != 0).sum(axis=1, dtype=np.int64)
        return steps

    def nearest(self, point: Point, among: Mask) -> int:
        """Return the index of the config in `among` closest to a point; of equals, the first in the set's order.

        Raises:
            ValueError: `among` is empty.
        """
        candidates = np.flatnonzero(among)
        if not candidates.size:
            raise ValueError("no config is left to choose from")
        return int(candidates[np.argmin(self.steps(point, candidates))])

    def neighbours(self, position: int) -> Positions:
        """Return the ascending indices of the configs one step away."""
        if self._may_add is not None:
            self._add_neighbours(self.points[position])
        return np.flatnonzero(self.steps(self.points[position], np.arange(len(self.points))) == 1)

    def _add_neighbours(self, point: Point) -> None:
        for axis, (size, ordered) in enumerate(zip(self.sizes, self.ordered, strict=True)):
            level = int(point[axis])
            for other in (level - 1, level + 1) if ordered else range(size):
                if 0 <= other < size:
                    moved = point.copy()
                    moved[axis] = other
                    self.find(moved)

    def _add(self, point: Point, key: bytes) -> int | None:
        """Add the config at a point, and return its index; None where it may not be added."""
        assert self._may_add is not None
        values = {name: of[level] for name, of, level in zip(self.names, self.values, point, strict=True)}
        config = Config({**self.configs[0], **values})  # the params of one value have no axis
        if not self._may_add(config):
            self._refused.add(key)
            return None
        found = self._by_config[config] = self._by_point[key] = len(self.configs)
        self.configs.append(config)
        if found == len(self._rows):
            self._rows = np.vstack([self._rows, np.empty_like(self._rows)])
        self._rows[found] = point
        self.points = self._rows[: found + 1]
        return found

    @cached_property
    def _by_point(self) -> dict[bytes, int]:
        return {point.tobytes(): i for i, point in enumerate(self.points)}


def values_by_name(configs: Sequence[Config]) -> Mapping[str, Sequence[Value]]:
    """Return each parameter's values over the configs, in their order; the configs share their parameters."""
    names = list(configs[0]) if configs else []
    flat = list(chain.from_iterable(config.values() for config in configs))
    return {name: flat[i :: len(names)] for i, name in enumerate(names)}
