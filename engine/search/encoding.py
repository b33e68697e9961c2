"""A feasible set as integer vectors, so that a search can measure distance and take steps in it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.records.config import Config, Param

__all__ = ["Encoding", "Mask", "Point", "Positions"]

Point = NDArray[np.int16]
"""One level an axis."""
Mask = NDArray[np.bool_]
"""One flag a config of the feasible set."""
Positions = NDArray[np.intp]
"""Places in the feasible set."""


class Encoding:
    """The feasible set on a grid: an axis a parameter, a level a value.

    A value no feasible config takes has no level, and a parameter with one level has no axis: a step is always a step
    to another value that occurs. A config is known by its position in the feasible set.
    """

    names: tuple[str, ...]
    """The parameter of each axis."""
    sizes: tuple[int, ...]
    """Levels of each axis; at least 2."""
    ordered: NDArray[np.bool_]
    """Whether neighbouring levels of an axis behave alike; one flag an axis."""
    points: NDArray[np.int16]
    """The feasible set, configs × axes."""

    def __init__(self, params: Sequence[Param], feasible: Sequence[Config]) -> None:
        """Encode the set.

        Raises:
            KeyError: a config lacks a parameter, or has a value that its parameter does not list.
        """
        axes: list[tuple[Param, int]] = []
        columns: list[NDArray[np.int16]] = []
        for param in params:
            index = {value: i for i, value in enumerate(param.values)}
            column = np.fromiter((index[config[param.name]] for config in feasible), np.int16, len(feasible))
            used, levels = np.unique(column, return_inverse=True)
            if len(used) > 1:
                axes.append((param, len(used)))
                columns.append(levels.astype(np.int16))
        self.names = tuple(param.name for param, _ in axes)
        self.sizes = tuple(size for _, size in axes)
        self.ordered = np.array([param.ordered for param, _ in axes], np.bool_)
        self.points = np.stack(columns, axis=1) if columns else np.empty((len(feasible), 0), np.int16)
        self._by_config = {config: i for i, config in enumerate(feasible)}
        self._by_point = {point.tobytes(): i for i, point in enumerate(self.points)}

    def position(self, config: Config) -> int:
        """The position of a config.

        Raises:
            KeyError: it is not in the set.
        """
        return self._by_config[config]

    def find(self, point: Point) -> int | None:
        """The position of the config at that point; None where the point is not feasible."""
        return self._by_point.get(point.astype(np.int16).tobytes())

    def steps(self, point: Point, positions: Positions | Sequence[int]) -> NDArray[np.int64]:
        """Steps from a point, feasible or not, to each of the configs: levels apart, or 1 where the axis is unordered.

        Levels are not scaled by the size of their axis: a step in a long axis is as large a change as in a short one.
        """
        apart = np.abs(self.points[positions] - point)
        steps: NDArray[np.int64] = np.where(self.ordered, apart, apart != 0).sum(axis=1, dtype=np.int64)
        return steps

    def nearest(self, point: Point, among: Mask) -> int:
        """The position closest to a point, out of `among`; the first in the set's order where several are.

        Raises:
            ValueError: `among` is empty.
        """
        candidates = np.flatnonzero(among)
        if not candidates.size:
            raise ValueError("no config is left to choose from")
        return int(candidates[np.argmin(self.steps(point, candidates))])

    def neighbours(self, position: int) -> Positions:
        """Positions of the configs one step away, ascending."""
        everything = np.arange(len(self.points))
        return np.flatnonzero(self.steps(self.points[position], everything) == 1)
