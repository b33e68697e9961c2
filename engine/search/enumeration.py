"""Feasible configs of a task, and the reasons that exclude the others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from random import Random

from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Space

_DRAWS = 256
"""Points that are drawn at most to find a few that pass a space's check."""


def serves(space: Space, task: Task) -> Verdict:
    """Return whether the space's kernels are for the task's kind of workload."""
    if task.problem.kind == space.workload:
        return Verdict.yes()
    return Verdict.no("workload", f"{task.space} serves workloads of kind {space.workload}, not {task.problem.kind}")


def feasible_configs(space: Space, task: Task) -> Iterator[Config]:
    """Yield the configs that pass the space's check, in the order of enumeration; none for another workload."""
    if not serves(space, task):
        return iter(())
    return (config for config in space.points(task) if space.check(task, config))


def few_configs(space: Space, task: Task, count: int) -> tuple[Config, ...]:
    """Return up to `count` configs that pass the space's check: seeds from all parts of their list, then drawn points.

    Equal tasks get equal configs.
    """
    seeds = space.seeds(task)
    taken = min(count, len(seeds))
    found = dict.fromkeys(seeds[number * len(seeds) // taken] for number in range(taken))
    params, random = space.params(task), Random(task.key)  # noqa: S311 (no secret)
    for _ in range(_DRAWS if params else 0):
        if len(found) >= count:
            break
        drawn = Config({param.name: random.choice(param.values) for param in params})
        if drawn not in found and all(param.agrees_with(drawn) for param in params) and space.check(task, drawn):
            found[drawn] = None
    return tuple(found)


def membership(space: Space, task: Task) -> Callable[[Config], Verdict]:
    """Return the check of configs from a file: do they have the space's params and values, and pass its check."""
    params = tuple((param.name, tuple((type(value), value) for value in param.values)) for param in space.params(task))
    refused = _refused(params, task.space)

    def check(config: Config) -> Verdict:
        refusal = refused(config)
        return space.check(task, config) if refusal is None else refusal

    return check


@lru_cache(64)
def _refused(
    params: tuple[tuple[str, tuple[tuple[type, Value], ...]], ...], space: str
) -> Callable[[Config], Verdict | None]:
    """Return the function that refuses a config of other params or values; tasks share params and configs."""
    known = {name: frozenset(values) for name, values in params}

    @lru_cache(2**14)
    def refused(config: Config) -> Verdict | None:
        for name in known.keys() ^ config.keys():
            return Verdict.no("params", f"param {name} is {'missing' if name in known else 'unknown'}")
        for name, values in known.items():
            if (type(config[name]), config[name]) not in values:
                return Verdict.no("values", f"{name}={config[name]!r} is not a value of {space}")
        return None

    return refused


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
    if not (verdict := serves(space, task)):
        return EnumeratedSpace(0, (), {}, {verdict.rule: verdict.reason})
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
