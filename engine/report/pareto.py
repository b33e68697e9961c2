"""Pareto fronts: the configs of a task that no other beats in every part of an objective."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, readable, readable_unit, table_text

__all__ = ["Scored", "front", "front_record", "front_text"]

Scored = tuple[Config, tuple[float, ...]]
"""A config and its scores, one a part."""


def front(scored: Iterable[Scored]) -> list[Scored]:
    """Those no other dominates, by the first score: no other is as good in every part and better in one.

    Configs of equal scores dominate each other in nothing, and stay together.
    """
    members: list[Scored] = []
    # In this order what dominates a config stands before it, and is a member itself or is dominated by one.
    for config, scores in sorted(dict.fromkeys(scored), key=lambda each: (each[1], each[0].json)):
        if not any(_dominates(other, scores) for _, other in members):
            members.append((config, scores))
    return members


def front_text(task: Task, parts: Sequence[str], scored: Sequence[Scored], width: int | None = None) -> str:
    """The front of a task under a title, a line a config."""
    members = front(scored)
    names, _, units = zip(*(part.rpartition(" ") for part in parts), strict=True)
    headers = [*(f"{name} {readable_unit(unit)}" for name, unit in zip(names, units, strict=True)), "config"]
    rows = [[*map(readable, scores, units), config_text(task, config)] for config, scores in members]
    title = f"Pareto front of {task.key}, {len(members)} of {count(len(scored), 'config')}"
    return f"{title}\n\n{table_text(headers, rows, ('config',), width)}"


def front_record(parts: Sequence[str], scored: Iterable[Scored]) -> list[dict[str, object]]:
    """The same for programs: part to score, in the part's unit, and the config."""
    names = [part.replace(" ", "_") for part in parts]
    return [dict(zip(names, scores, strict=True)) | {"config": dict(config)} for config, scores in front(scored)]


def _dominates(other: tuple[float, ...], scores: tuple[float, ...]) -> bool:
    return other != scores and all(theirs <= ours for theirs, ours in zip(other, scores, strict=True))
