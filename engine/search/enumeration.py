"""Feasible configs of a task, and the reasons that exclude the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import prod
from random import Random

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Space

MOST_ENUMERATED = 2**18
"""Points of the largest space that a search enumerates; of a larger one it draws as many at most."""
_DRAWS = 256
"""Points that are drawn at most to find a few that pass a space's check."""
_DRAWN = 2**14
"""Configs that are drawn for a search of a large space; more where its budget is larger than half of them."""


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


def searched_configs(space: Space, task: Task, budget: int, seed: int) -> Iterable[Config]:
    """Return the feasible configs for a search of so many evaluations; those of a large space are drawn, seeds first.

    A space with points of its own is enumerated, whatever its params span.
    """
    params = space.params(task)
    may_ask = permission(params, partial(space.check, task))
    has_own = type(space).points is not Space.points
    drawn = None if has_own else drawn_configs(params, may_ask, budget, seed, filter(may_ask, space.seeds(task)))
    return drawn or feasible_configs(space, task)


def few_configs(space: Space, task: Task, count: int) -> tuple[Config, ...]:
    """Return up to `count` configs that pass the space's check: seeds from all parts of their list, then drawn points.

    Equal tasks get equal configs.
    """
    seeds = space.seeds(task)
    taken = min(count, len(seeds))
    found = dict.fromkeys(seeds[number * len(seeds) // taken] for number in range(taken))
    params, random = space.params(task), Random(task.key)  # noqa: S311 (no secret)
    if params:
        _draw(params, permission(params, partial(space.check, task)), found, count, _DRAWS, random)
    return tuple(found)


def permission(params: Sequence[Param], valid: Callable[[Config], object]) -> Callable[[Config], bool]:
    """Return the check of a config that need not be enumerated: does it have values of the params, and is it valid."""
    known = {param.name: frozenset(param.values) for param in params}

    def may_ask(config: Config) -> bool:
        has_values = config.keys() == known.keys() and all(config[name] in known[name] for name in known)
        return has_values and all(param.agrees_with(config) for param in params) and bool(valid(config))

    return may_ask


def drawn_configs(
    params: Sequence[Param], may_ask: Callable[[Config], bool], budget: int, seed: int, first: Iterable[Config] = ()
) -> tuple[Config, ...] | None:
    """Return `first` and configs drawn for a search of so many evaluations, each permitted one as likely.

    Return None where the space is to be enumerated: it is small, or fewer configs than the budget were found.
    """
    if prod(len(param.values) for param in params) <= MOST_ENUMERATED:
        return None
    found = dict.fromkeys(first)
    count = len(found) + max(_DRAWN, 2 * budget)
    _draw(params, may_ask, found, count, MOST_ENUMERATED, Random(seed))  # noqa: S311 (no secret)
    return tuple(found) if len(found) >= budget else None


def _draw(
    params: Sequence[Param],
    may_ask: Callable[[Config], bool],
    found: dict[Config, None],
    count: int,
    most: int,
    random: Random,
) -> None:
    """Add permitted configs up to a count, by at most so many draws."""
    for _ in range(most):
        if len(found) >= count:
            break
        drawn = Config({param.name: random.choice(param.values) for param in params})
        if drawn not in found and may_ask(drawn):
            found[drawn] = None


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
