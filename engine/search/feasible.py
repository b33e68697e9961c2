"""The feasible set of a task: what its space allows, and why the rest is out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space

__all__ = ["Census", "census"]


@dataclass(frozen=True, slots=True)
class Census:
    """Every point of a space, counted once: `points` = feasible + the sum of the rejections."""

    points: int
    """Configs enumerated."""
    feasible: tuple[Config, ...]
    """Those the space's check passed, in the order of enumeration."""
    rejections: Mapping[str, int]
    """Rule to the number of configs it rejected, in the order in which the rules first spoke."""
    examples: Mapping[str, str]
    """Rule to the reason of its first rejection."""


def census(space: Space, task: Task) -> Census:
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
    return Census(points, tuple(feasible), rejections, examples)
