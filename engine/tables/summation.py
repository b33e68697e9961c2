"""Batch-invariant tables: one order of summation per series, so that equal rows get equal bits at every size.

An order is what kernels have in common that add the products of each element alike: their space, its text of the order
(`Space.summation`) and, where these were compared, the bits of rows (`Estimate.bits`).
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeAlias

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import SHIP_MARGIN, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranges import build_ranges
from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.rows import build_table

SummationOf: TypeAlias = Callable[[Workload, str, Config], str]
"""Function from a problem, a space's name and a config to the text of the order; empty without one."""
Order: TypeAlias = tuple[str, str, str]
"""Order of summation: a space's name, its text of the order, and the digest of bits, which may be empty."""


def orders_by_loss(
    rankings: Iterable[Ranking], summation_of: SummationOf, *, compared: bool = True, unknown: float = math.inf
) -> dict[Workload, list[Order]]:
    """Return the orders of each series that has any, those first that lose least.

    The loss is the weighted mean over the sizes, against the fastest choice of each, the vendor library among them.

    Args:
        rankings: rankings of all problems, in any order.
        summation_of: returns the order of a config.
        compared: whether kernels whose bits differ have different orders; if not, digests are left empty.
        unknown: loss at a size where nothing of the order is known, as a fraction.
    """
    losses: defaultdict[Workload, defaultdict[Order, dict[Workload, float]]] = defaultdict(lambda: defaultdict(dict))
    sizes: defaultdict[Workload, list[Workload]] = defaultdict(list)
    for ranking in rankings:
        sizes[ranking.problem.bits_series].append(ranking.problem)
        of_series = losses[ranking.problem.bits_series]
        for contender in ranking.contenders:
            if order := _order_of(ranking.problem, contender, summation_of, compared=compared):
                loss, known = contender.score / ranking.fastest.score - 1, of_series[order]
                known[ranking.problem] = min(loss, known.get(ranking.problem, math.inf))

    found: dict[Workload, list[Order]] = {}
    for series, of_series in losses.items():
        ranked = [
            (sum(each.weight * lost.get(each, unknown) for each in sizes[series]), order)
            for order, lost in of_series.items()
        ]
        if ranked:
            found[series] = [order for _, order in sorted(ranked)]
    return found


def restricted(ranking: Ranking, order: Order, summation_of: SummationOf, *, compared: bool = True) -> Ranking | None:
    """Return the ranking of the choices of one order by their scores, without a baseline; None without any.

    The final of a problem is of its fastest configs in any order, and says little of those of one.
    """
    problem = ranking.problem
    own = [c for c in ranking.contenders if _order_of(problem, c, summation_of, compared=compared) == order]
    by_score = tuple(sorted(own, key=lambda contender: (contender.score, contender.order)))
    return replace(ranking, contenders=by_score, baseline=None) if own else None


def invariant_table(
    device: Device,
    objective_name: str,
    rankings: Sequence[Ranking],
    summation_of: SummationOf,
    *,
    limits: RangeLimits,
    margin: float = SHIP_MARGIN,
) -> Table:
    """Build a table in which each series has one order of summation: the one that loses least over all its sizes.

    A row has the fastest choice of the order alone, whether or not the vendor library is faster: its lead and its loss
    say what equal bits cost. Ranges share the sizes out among the choices of the order. A series without an order that
    serves all its sizes is left out.
    """
    sizes: defaultdict[Workload, list[Ranking]] = defaultdict(list)
    for ranking in rankings:
        sizes[ranking.problem.bits_series].append(ranking)
    served: list[Ranking] = []
    own: list[Ranking] = []
    for series, (order, *_) in orders_by_loss(rankings, summation_of).items():
        found = [each for ranking in sizes[series] if (each := restricted(ranking, order, summation_of)) is not None]
        if len(found) == len(sizes[series]):
            own += found
            served += sizes[series]
    choices = {each.problem: each.fastest.choice for each in own}
    pinned = {problem: (choice.space, choice.config) for problem, choice in choices.items()}
    table = build_table(device, objective_name, served, margin=margin, pinned=pinned)
    rows = tuple(replace(row, choices=row.choices[:1]).with_lead() for row in table.rows)
    return replace(table, rows=rows, ranges=build_ranges(own, limits, margin=margin), batch_invariant=True)


def require_one_summation(table: Table) -> None:
    """Raise a TableError that names two orders in which rows and ranges of one series add."""
    chosen = [(row.problem, row.choices[0]) for row in table.rows]
    chosen += [(row.problem, row.choice) for row in table.ranges]
    spaces = {name: registry.space(name) for name in {choice.space for _, choice in chosen}}
    orders: dict[Workload, str] = {}
    for problem, choice in chosen:
        text = spaces[choice.space].summation(Task(problem, table.device, choice.space), choice.config)
        order = f"{choice.space}, {text}" if text else f"{choice.space} in no order that holds at every size"
        if not text or orders.setdefault(problem.bits_series, order) != order:
            others = orders.get(problem.bits_series, "one order")
            raise TableError(f"{problem.name} adds by {order}, and a batch-invariant table by {others}: tune it again")


def _order_of(problem: Workload, contender: Contender, summation_of: SummationOf, *, compared: bool) -> Order | None:
    """Return a contender's order of summation; None without one, and where bits count and a GPU compared none."""
    choice = contender.choice
    if compared and choice.evidence is Evidence.MEASURED and not contender.bits:
        return None
    text = summation_of(problem, choice.space, choice.config)
    return (choice.space, text, contender.bits if compared else "") if text else None
