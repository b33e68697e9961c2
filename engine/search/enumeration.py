"""Feasible configs of a task, and the reasons that exclude the others."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

__all__ = ["EnumeratedSpace", "enumerate_space", "feasible_configs"]


def feasible_configs(space: Space, task: Task) -> Iterator[Config]:
    """Yield the configs that pass the space's check, in the order of enumeration."""
    return (config for config in space.points(task) if space.check(task, config))


@dataclass(frozen=True, slots=True)
class EnumeratedSpace:
    """Every point of a space, accepted or counted under the rule that rejected it."""

    points: int
    """Number of configs enumerated: the feasible ones plus all rejections."""
    feasible: tuple[Config, ...]
    """Configs that passed the space's check, in the order of enumeration."""
    rejections: Mapping[str, int]
    """Number of configs rejected by each rule, in the order in which the rules first applied."""
    examples: Mapping[str, str]
    """Reason of the first rejection by each rule."""


def enumerate_space(space: Space, task: Task) -> EnumeratedSpace:
    """Enumerate a space and check every point, without building anything."""
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
