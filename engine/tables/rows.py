"""From rankings to rows: what production should run for each problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.tables.portfolio import Portfolio
from gemmtune.engine.tables.ranking import SHIP_MARGIN, Contender, Ranking

__all__ = ["build_table", "unserved"]


def build_table(
    device: Device,
    objective_name: str,
    rankings: Iterable[Ranking],
    *,
    margin: float = SHIP_MARGIN,
    portfolio: Portfolio | None = None,
    choices: int = 3,
) -> Table:
    """One row a ranking.

    A row has the first `choices` choices, and behind them the best of every space that has none among those: there are
    consumers that run one space alone. The fastest comes first only if it may ship, that is, if it beats the baseline
    beyond the noise and by the margin. Otherwise the baseline comes first. Where a portfolio has picked a config of a
    space for the problem, it comes before the others of that space.

    The tie band holds the configs of the fastest's own space that it does not beat beyond the noise, itself first. If
    the fastest leads the problem's final, the tie band and the regret bound are the final's.

    Args:
        device: the GPU of the rankings.
        objective_name: what they were ranked by.
        rankings: one a problem.
        margin: lead over the baseline that a row needs to ship anything else, as a fraction.
        portfolio: chosen from these rankings with this margin.
        choices: choices a row has, at least 1.

    Raises:
        ValueError: `choices` is below 1.
    """
    if choices < 1:
        raise ValueError(f"choices={choices} is below 1")
    rows = (_row(ranking, margin, portfolio, choices) for ranking in rankings)
    return Table(device, tuple(sorted(rows, key=_row_order)), objective_name)


def unserved(table: Table, measurements: Iterable[Measurement]) -> tuple[Problem, ...]:
    """The problems that were tried and have no row, because nothing that may be ranked was ok; sorted by name."""
    served = {row.problem for row in table.rows}
    return tuple(sorted({m.task.problem for m in measurements} - served, key=lambda p: (p.name, repr(p))))


def _row(ranking: Ranking, margin: float, portfolio: Portfolio | None, limit: int) -> Row:
    fastest, baseline, settled = ranking.fastest, ranking.baseline, ranking.settled
    ordered = _picked_first(ranking, portfolio) if portfolio else list(ranking.contenders)
    if baseline is not None and not ranking.may_ship(fastest, margin):
        ordered = [baseline, *(c for c in ordered if c is not baseline)]
    rivals = [
        c
        for c in ranking.contenders
        if c.choice.space == fastest.choice.space and (c.finalist is not None or not settled)
    ]
    return Row(
        problem=ranking.problem,
        choices=_kept([c.choice for c in ordered], limit),
        baseline=None if baseline is None else baseline.choice,
        margin=0.0 if baseline is None else baseline.choice.time_ns / fastest.choice.time_ns - 1,
        tie_band=tuple(c.choice.config for c in rivals if not ranking.beats(fastest, c)),
        regret_bound=ranking.final.regret_bound if ranking.final is not None and settled else None,
        loss=max(0.0, ordered[0].score / fastest.score - 1),
    )


def _picked_first(ranking: Ranking, portfolio: Portfolio) -> list[Contender]:
    """The contenders, each pick in the place of the first of its space, and the others of that space behind it."""
    ordered = list(ranking.contenders)
    for pick in portfolio.of(ranking.problem):
        first = next(place for place, c in enumerate(ordered) if c.choice.space == pick.space)
        found = next(c for c in ordered if (c.choice.space, c.choice.config) == (pick.space, pick.config))
        ordered.remove(found)
        ordered.insert(first, found)
    return ordered


def _kept(ordered: Sequence[Choice], limit: int) -> tuple[Choice, ...]:
    best = {choice.space: choice for choice in reversed(ordered)}
    return tuple(choice for place, choice in enumerate(ordered) if place < limit or best[choice.space] is choice)


def _row_order(row: Row) -> tuple[str, str]:
    return row.problem.name, repr(row.problem)
