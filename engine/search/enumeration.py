"""Feasible configs of a task, and the reasons that exclude the others."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from math import prod
from random import Random

from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Space

MOST_ENUMERATED = 2**18
"""Points of the largest space that is enumerated; a search of a larger one draws as many at most."""
_DRAWS = 256
"""Points that are drawn at most to find a few that pass a space's check."""
_DRAWN = 2**14
"""Configs that are drawn for a search of a large space; more where its budget is larger than half of them."""


class DrawnConfigs(tuple[Config, ...]):
    """Permitted configs that were drawn from a space too large to enumerate."""

    size: int
    """Number of permitted configs in the whole space, estimated from their share of the draws."""


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


def searched_configs(space: Space, task: Task, budget: int, seed: int, count: int | None = None) -> Iterable[Config]:
    """Return the feasible configs for a search of so many evaluations, of a large space `DrawnConfigs`, seeds first.

    A space with points of its own is enumerated, whatever its params span. `count` is that of `drawn_configs`.
    """
    if type(space).points is not Space.points or not serves(space, task):
        return feasible_configs(space, task)
    params = space.params(task)
    may_ask = permission(params, partial(space.check, task))
    drawn = drawn_configs(params, may_ask, budget, seed, filter(may_ask, space.seeds(task)), count)
    return feasible_configs(space, task) if drawn is None else drawn


def possible_evaluations(space: Space, task: Task, budget: int, seed: int) -> int:
    """Return the budget, or the number of `searched_configs` where there are fewer; no more of them are sought."""
    return sum(1 for _ in islice(searched_configs(space, task, budget, seed, count=budget), budget))


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
    params: Sequence[Param],
    may_ask: Callable[[Config], bool],
    budget: int,
    seed: int,
    first: Iterable[Config] = (),
    count: int | None = None,
) -> DrawnConfigs | None:
    """Return `first` and configs drawn for a search of so many evaluations, each permitted one as likely.

    Fewer than the budget are returned, or none, where few points are permitted. `count` configs are enough, by default
    16,384 or twice the budget.

    Return None where the space is to be enumerated: it is small, or the budget covers it.
    """
    points = _points_of(params)
    if points <= max(MOST_ENUMERATED, budget):
        return None
    found = dict.fromkeys(first)
    wanted = len(found) + max(_DRAWN, 2 * budget) if count is None else count
    most = max(MOST_ENUMERATED, 4 * budget)
    draws, permitted = _draw(params, may_ask, found, wanted, most, Random(seed))  # noqa: S311 (no secret)
    drawn = DrawnConfigs(found)
    drawn.size = max(len(found), (permitted + 1) * points // (draws + 1))  # no draw proves that there is no other
    return drawn


def _draw(
    params: Sequence[Param],
    may_ask: Callable[[Config], bool],
    found: dict[Config, None],
    count: int,
    most: int,
    random: Random,
) -> tuple[int, int]:
    """Add permitted configs up to a count, by at most so many draws; return the draws, and how many were permitted."""
    permitted = 0
    for draws in range(most):
        if len(found) >= count:
            return draws, permitted
        drawn = Config({param.name: random.choice(param.values) for param in params})
        if drawn in found or may_ask(drawn):
            found[drawn] = None
            permitted += 1
    return most, permitted


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
    """Every point of a space, or those drawn of a large one, accepted or counted under the rule that rejected it."""

    points: int
    """Number of configs checked: the feasible ones plus all rejections."""
    feasible: tuple[Config, ...]
    """Configs that passed the space's check, in the order of enumeration."""
    rejections: Mapping[str, int]
    """Number of configs rejected by each rule, in the order in which the rules first applied."""
    examples: Mapping[str, str]
    """Reason of the first rejection by each rule."""
    size: int
    """Number of points in the whole space."""


def enumerate_space(space: Space, task: Task) -> EnumeratedSpace:
    """Check every point of a space, of a large one 16,384 that are drawn, without building anything."""
    if not (verdict := serves(space, task)):
        return EnumeratedSpace(0, (), {}, {verdict.rule: verdict.reason}, 0)
    size = _points_of(space.params(task)) if type(space).points is Space.points else 0
    is_large = size > MOST_ENUMERATED
    points = 0
    feasible: list[Config] = []
    rejections: dict[str, int] = {}
    examples: dict[str, str] = {}
    for config in _some_points(space, task) if is_large else space.points(task):
        points += 1
        verdict = space.check(task, config)
        if verdict:
            feasible.append(config)
        else:
            rejections[verdict.rule] = rejections.get(verdict.rule, 0) + 1
            examples.setdefault(verdict.rule, verdict.reason)
    return EnumeratedSpace(points, tuple(feasible), rejections, examples, size if is_large else points)


def _some_points(space: Space, task: Task) -> Iterable[Config]:
    found: dict[Config, None] = {}
    params, random = space.params(task), Random(task.key)  # noqa: S311 (no secret)
    _draw(params, permission(params, lambda config: True), found, _DRAWN, MOST_ENUMERATED, random)
    return found


def _points_of(params: Sequence[Param]) -> int:
    return prod(len(param.values) for param in params)
