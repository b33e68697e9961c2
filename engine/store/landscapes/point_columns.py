"""Points of one task, held in columns: as objects, those of a million configs take half a gigabyte."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, ValuesView
from dataclasses import dataclass, field
from itertools import count

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.landscape import Point, Points
from gemmtune.engine.records.measurement import Status

Extras = tuple[str, Resources | None, float | None, float | None]
"""Reason, resources, build seconds and cost in seconds of a point."""
_NO_EXTRAS: Extras = ("", None, None, None)


@dataclass(frozen=True, slots=True, eq=False)
class PointColumns(Points):
    """Recorded outcome of each config in file order; a point is made when it is asked for."""

    positions: dict[Config, int] = field(default_factory=dict)
    """Position of each config in the columns."""
    statuses: list[Status] = field(default_factory=list)
    """Status per config, in the order of `positions`."""
    times_ns: array[float] = field(default_factory=lambda: array("d"))
    """Recorded time per config in ns; 0 unless the status is ok."""
    samples_ns: array[float] = field(default_factory=lambda: array("d"))
    """Recorded times of all launches in ns, those of the first config first."""
    ends: array[int] = field(default_factory=lambda: array("q"))
    """Number of launches up to and with those of each config."""
    extras: dict[int, Extras] = field(default_factory=dict)
    """Further facts by position, where a config has any."""

    def __getitem__(self, config: Config) -> Point:
        return self.point(config, self.positions[config])

    def __contains__(self, config: object) -> bool:
        return config in self.positions

    def __iter__(self) -> Iterator[Config]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)

    def values(self) -> ValuesView[Point]:
        """Return a view of the points that looks up no config."""
        return _Points(self)

    def times_ns_of_ok(self) -> Iterator[float]:
        """Yield the recorded time of each ok config in ns, in file order."""
        return filter(None, self.times_ns)

    def point(self, config: Config, position: int) -> Point:
        """Return the point of a config at its position."""
        status = self.statuses[position]
        time_ns = self.times_ns[position] if status is Status.OK else None
        samples = tuple(self.samples_ns[self.ends[position - 1] if position else 0 : self.ends[position]])
        return Point(config, status, time_ns, samples, *self.extras.get(position, _NO_EXTRAS))


class _Points(ValuesView[Point]):
    def __init__(self, columns: PointColumns) -> None:
        super().__init__(columns)
        self._columns = columns

    def __iter__(self) -> Iterator[Point]:
        return map(self._columns.point, self._columns.positions, count())
