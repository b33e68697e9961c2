"""The feasible set of a task: what its space allows, and why the rest is out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

__all__ = ["EnumeratedSpace", "LazyConfigs", "enumerate_space", "feasible_configs"]


def feasible_configs(space: Space, task: Task) -> Iterator[Config]:
    """The configs that the space's check passes, in the order of enumeration, each when it is asked for."""
    return (config for config in space.points(task) if space.check(task, config))


class LazyConfigs:
    """Configs that are drawn as far as somebody needs them, and kept: a campaign begins before it knows all of them.

    Enumerating `triton_mm` for one problem takes 0.1 s, of which its first 64 feasible configs take a twentieth.
    """

    def __init__(self, configs: Iterable[Config]) -> None:
        """Draw nothing yet."""
        self._rest = iter(configs)
        self._drawn: list[Config] = []

    def count(self, most: int) -> int:
        """How many there are, or `most` where there are more; no more than that are drawn."""
        self._drawn.extend(islice(self._rest, max(most - len(self._drawn), 0)))
        return min(len(self._drawn), most)

    def all(self) -> tuple[Config, ...]:
        """Every one, in order."""
        self._drawn.extend(self._rest)
        return tuple(self._drawn)


@dataclass(frozen=True, slots=True)
class EnumeratedSpace:
    """Every point of a space, counted once: `points` = feasible + the sum of the rejections."""

    points: int
    """Configs enumerated."""
    feasible: tuple[Config, ...]
    """Those the space's check passed, in the order of enumeration."""
    rejections: Mapping[str, int]
    """Rule to the number of configs it rejected, in the order in which the rules first spoke."""
    examples: Mapping[str, str]
    """Rule to the reason of its first rejection."""


def enumerate_space(space: Space, task: Task) -> EnumeratedSpace:
    """Enumerate the space and check every point. Costs one `check` a point and builds nothing."""
    points = 0
    feasible: list[Config] = []
    rejections: dict[str, int] = {}
    examples: dict[str, str] = {}
    for config in space.points(task):
        points += 1
        verdict = space.check(task, config)
        if verdict:
            feasible.append(config)
        else:
            rejections[verdict.rule] = rejections.get(verdict.rule, 0) + 1
            examples.setdefault(verdict.rule, verdict.reason)
    return EnumeratedSpace(points, tuple(feasible), rejections, examples)
