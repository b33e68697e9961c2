"""Measure what a batch-invariant table needs besides the searches: the best orders of summation, at every size.

A search finds the fastest configs of each problem, in whatever order of summation. Two rounds follow:

| round    | where      | configs                                                                    |
|----------|------------|----------------------------------------------------------------------------|
| orders   | every size | half a budget of each of the three best orders, by the sampler             |
| winners  | every size | the best configs of these orders at every other size of the series         |
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from gemmtune.engine.campaign.backend import search_of
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch, exhaustive_search
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.search.enumeration import searched_configs
from gemmtune.engine.tables.ranking import Ranking
from gemmtune.engine.tables.summation import Order, SummationOf, orders_by_loss, restricted

_ORDERS = 3
"""Orders of a series that are measured further, of ten that there may be; most are far behind at some size."""
_UNKNOWN = 0.25
"""Loss that an order is taken to have at a size where nothing of it was measured yet, as a fraction: one that is
best at another size should be tried there."""
_WINNERS = 3
"""Configs of a size and an order that are measured at the other sizes."""


def summation_of(plan: Plan, device: Device) -> SummationOf:
    """Return the function that says the orders of summation of the plan's spaces; the baseline's is empty."""

    def found(problem: Workload, space: str, config: Config) -> str:
        if space not in plan.spaces:
            return ""
        order = plan.plugins.spaces[space].summation(Task(problem, device, space), config)
        return f"{order}, BLOCK_K {config.integer('BLOCK_K')}" if order and plan.one_block_k else order

    return found


def measure_summations(
    plan: Plan,
    searches: Sequence[TaskSearch],
    *,
    device: Device,
    run: Callable[[Sequence[TaskSearch]], None],
    rankings: Callable[[Sequence[TaskSearch]], list[Ranking]],
) -> None:
    """Run the rounds.

    Args:
        plan: what is tuned.
        searches: the finished searches of the plan's tasks.
        device: GPU of the tasks.
        run: runs searches to their end.
        rankings: returns the rankings of the problems of these searches.
    """
    of = summation_of(plan, device)
    tasks = [search.task for search in searches if not search.task.is_baseline]
    best = orders_by_loss(rankings(searches), of, compared=False, unknown=_UNKNOWN)
    rounds = [{s: orders[place] for s, orders in best.items() if len(orders) > place} for place in range(_ORDERS)]
    for orders in rounds:
        run([*_searches_of_orders(plan, tasks, orders, of)])
    for orders in rounds:
        run([*_winner_searches(plan, tasks, orders, rankings(searches), of)])


def static_sizes(searches: Sequence[TaskSearch]) -> Iterator[str]:
    """Yield a line if sizes are compiled into kernels: a small one rules out the tiles that serve a large one."""
    static = {search.task.problem for search in searches if not search.task.problem.takes_size_at_launch}
    if static:
        size = min(problem.range_size for problem in static)
        number, why = len(static), "and a small one has no large tiles: tune them with dynamic_m=true"
        yield f"batch_invariant: {number} problems have a static {size}, {why}"


def _searches_of_orders(
    plan: Plan, tasks: Sequence[Task], orders: dict[Workload, Order], of: SummationOf
) -> Iterator[TaskSearch]:
    """Yield a search per task over the configs of the order that its series has."""
    for task in tasks:
        space, text, _ = orders.get(task.problem.bits_series, ("", "", ""))
        if task.space == space:
            seed = own_seed(plan.seed, task.key)
            feasible = [*searched_configs(plan.plugins.spaces[space], task, plan.budget, seed)]
            configs = [config for config in feasible if of(task.problem, space, config) == text]
            if 0 < len(configs) < len(feasible):  # the search before was of all
                yield search_of(plan, task, min(-(-plan.budget // 2), len(configs)), partial(tuple, configs))


def _winner_searches(
    plan: Plan, tasks: Sequence[Task], orders: dict[Workload, Order], rankings: Sequence[Ranking], of: SummationOf
) -> Iterator[TaskSearch]:
    """Yield a search per task over the best configs of its series' order at every size."""
    winners: defaultdict[Workload, dict[Config, None]] = defaultdict(dict)
    for ranking in rankings:
        series = ranking.problem.bits_series
        own = restricted(ranking, orders[series], of, compared=False) if series in orders else None
        for contender in own.contenders[:_WINNERS] if own else ():
            winners[series][contender.choice.config] = None
    for task in tasks:
        series = task.problem.bits_series
        if series in orders and task.space == orders[series][0]:
            space = plan.plugins.spaces[task.space]
            configs = [config for config in winners[series] if space.check(task, config)]
            if configs:
                yield exhaustive_search(task, space, configs, plan.scores)
