"""Pareto fronts: the configs of a task that no other config beats in every part of an objective."""

from collections.abc import Iterable, Sequence
from operator import le

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Grid, config_text, count, readable, readable_unit

Scored = tuple[Config, tuple[float, ...]]
"""A config with its score per part of the objective."""


def pareto_front(scored: Iterable[Scored]) -> list[Scored]:
    """Return the configs that no other dominates, ordered by the first score.

    A config dominates another if it is as good in every part and better in one. Configs of equal scores stay together.
    """
    members: list[Scored] = []
    # In this order, a config comes after every config that dominates it, and after a member that does.
    for config, scores in sorted(dict.fromkeys(scored), key=lambda each: (each[1], each[0].json)):
        if not any(other != scores and all(map(le, other, scores)) for _, other in members):
            members.append((config, scores))
    return members


def front_sections(task: Task, parts: Sequence[str], scored: Sequence[Scored]) -> list[str | Grid]:
    """Return the front of a task for a person: a title and a line per config.

    `parts` are names of the objective's parts with their units: `latency ns`, `energy J`.
    """
    members = pareto_front(scored)
    columns = {}
    for number, part in enumerate(parts):
        name, _, unit = part.rpartition(" ")
        columns[f"{name} {readable_unit(unit)}"] = [readable(scores[number], unit) for _, scores in members]
    columns["config"] = [config_text(task, config) for config, _ in members]
    title = f"Pareto front of {task.key}, {len(members)} of {count(len(scored), 'config')}"
    return [title, Grid(columns, ("config",))]


def front_json(parts: Sequence[str], scored: Iterable[Scored]) -> list[dict[str, object]]:
    """Return the front for programs: per config, the score of each part in the part's unit, and the config."""
    names = [part.replace(" ", "_") for part in parts]
    return [dict(zip(names, scores, strict=True)) | {"config": config} for config, scores in pareto_front(scored)]
