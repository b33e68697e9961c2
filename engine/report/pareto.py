"""Pareto fronts: the configs of a task that no other config beats in every part of an objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, readable, readable_unit, table_text

__all__ = ["FrontReport", "Scored", "pareto_front"]

Scored = tuple[Config, tuple[float, ...]]
"""A config with its score per part of the objective."""


def pareto_front(scored: Iterable[Scored]) -> list[Scored]:
    """Return the configs that no other dominates, ordered by the first score.

    A config dominates another if it is as good in every part and better in one. Configs of equal scores stay together.
    """
    members: list[Scored] = []
    # In this order, a config comes after every config that dominates it, and after a member that does.
    for config, scores in sorted(dict.fromkeys(scored), key=lambda each: (each[1], each[0].json)):
        if not any(_dominates(other, scores) for _, other in members):
            members.append((config, scores))
    return members


@dataclass(frozen=True, slots=True)
class FrontReport:
    """Pareto front of one task."""

    task: Task
    """Task that was searched."""
    parts: Sequence[str]
    """Names of the objective's parts with their units: `latency ns`, `energy J`."""
    scored: Sequence[Scored]
    """Every config that was ok, with its scores."""

    def to_text(self, width: int | None = None) -> str:
        """Return a title and a line per config of the front."""
        members = pareto_front(self.scored)
        names, _, units = zip(*(part.rpartition(" ") for part in self.parts), strict=True)
        headers = [*(f"{name} {readable_unit(unit)}" for name, unit in zip(names, units, strict=True)), "config"]
        rows = [[*map(readable, scores, units), config_text(self.task, config)] for config, scores in members]
        title = f"Pareto front of {self.task.key}, {len(members)} of {count(len(self.scored), 'config')}"
        return f"{title}\n\n{table_text(headers, rows, ('config',), width)}"

    def to_json(self) -> list[dict[str, object]]:
        """Return an object per config: part to score, in the part's unit, and the config."""
        names = [part.replace(" ", "_") for part in self.parts]
        front = pareto_front(self.scored)
        return [dict(zip(names, scores, strict=True)) | {"config": dict(config)} for config, scores in front]


def _dominates(other: tuple[float, ...], scores: tuple[float, ...]) -> bool:
    return other != scores and all(theirs <= ours for theirs, ours in zip(other, scores, strict=True))
