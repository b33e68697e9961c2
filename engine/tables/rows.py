"""Rows of a table: the choice that production should run for each problem, made from rankings."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.table import SHIP_MARGIN, Choice, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space
from gemmtune.engine.tables.portfolio import Portfolio
from gemmtune.engine.tables.ranking import MIN_MARGIN, Contender, Ranking


def build_table(
    device: Device,
    objective_name: str,
    rankings: Iterable[Ranking],
    *,
    margin: float = SHIP_MARGIN,
    portfolio: Portfolio | None = None,
    pinned: Mapping[Workload, tuple[str, Config]] | None = None,
    choices: int = 3,
) -> Table:
    """Build a table with one row per ranking.

    - The fastest choice comes first if it beats the baseline beyond the noise and by the margin. Otherwise the baseline
      comes first. A portfolio's config comes before the others of its space.
    - A pinned choice, a space and a config that its problem's ranking has, comes first whatever else holds.
    - A choice that ties with the fastest and may ship comes first if its kernel needs fewer packages in production. A
      portfolio's config is left as it is.
    - A row has the first `choices` choices, and the best of every further space, for consumers that run one space.
    - The tie band holds the fastest config, then the configs of its space that it does not beat beyond the noise. If
      the fastest leads the problem's final, tie band and regret bound are the final's.

    Raises:
        ValueError: `choices` is below 1.
    """
    if choices < 1:
        raise ValueError(f"choices={choices} is below 1")
    rows: list[Row] = []
    measured_at = ""
    drivers: set[str] = set()
    for ranking in rankings:
        rows.append(_row(ranking, margin, portfolio, (pinned or {}).get(ranking.problem), choices))
        measured_at = max(measured_at, ranking.measured_at)
        drivers.update(ranking.drivers)
    rows.sort(key=lambda row: row.problem.name)
    ordered = tuple(sorted(drivers))
    return Table(device, tuple(rows), objective_name, margin=margin, measured_at=measured_at, drivers=ordered)


def reach_ns(fastest: Sequence[Measurement]) -> float:
    """Return a time in ns; a row neither chooses nor ties a measurement whose interval begins above it.

    Args:
        fastest: the three fastest ok measurements of a task that no final was held of, in order.
    """
    times = [(m.estimate.time_ns, m.estimate.high_ns) for m in fastest if m.estimate is not None]
    best, high = times[0]
    return max(times[-1][0], high, best * (1 + MIN_MARGIN))


def unserved(table: Table, measurements: Iterable[Measurement]) -> tuple[Workload, ...]:
    """Return the measured problems without a row, because no comparable measurement was ok; sorted by name."""
    served = {row.problem for row in table.rows}
    return tuple(sorted({m.task.problem for m in measurements} - served, key=lambda p: p.name))


def _row(
    ranking: Ranking, margin: float, portfolio: Portfolio | None, pinned: tuple[str, Config] | None, limit: int
) -> Row:
    fastest, baseline, final = ranking.fastest, ranking.baseline, ranking.final if ranking.led_by_final else None
    ordered = _picked_first(ranking, portfolio) if portfolio else list(ranking.contenders)
    if pinned is not None:
        ordered.sort(key=lambda c: (c.choice.space, c.choice.config) != pinned)
    elif baseline is not None and not ranking.may_ship(fastest, margin):
        ordered = [baseline, *(c for c in ordered if c is not baseline)]
    elif portfolio is None:
        tied = (c for c in ranking.contenders if not ranking.beats(ranking.fastest, c) and ranking.may_ship(c, margin))
        first = min((ranking.fastest, *tied), key=lambda c: _needs(c.choice.space))  # the first with the least
        ordered = [first, *(c for c in ordered if c is not first)]
    rivals = [c for c in ranking.of_space(fastest.choice.space) if c.finalist is not None or final is None]
    return Row(
        problem=ranking.problem,
        choices=_kept([c.choice for c in ordered], limit),
        baseline=None if baseline is None else baseline.choice,
        lead=None,
        tie_band=tuple(c.choice.config for c in rivals if not ranking.beats(fastest, c)),
        regret_bound=None if final is None else final.regret_bound,
        loss=max(0.0, ordered[0].score / fastest.score - 1),
    ).with_lead()


@cache
def _needs(space: str) -> int:
    """Return the number of packages that a space's kernels need beside torch; 0 for a space that is not installed."""
    return len(registry.space(space).needs) if space in registry.names(Space) else 0


def _picked_first(ranking: Ranking, portfolio: Portfolio) -> list[Contender]:
    """Return the contenders with each pick moved before the others of its space."""
    ordered = list(ranking.contenders)
    for pick in portfolio.of(ranking.problem):
        first = next(i for i, c in enumerate(ordered) if c.choice.space == pick.space)
        picked = next(c for c in ordered if (c.choice.space, c.choice.config) == (pick.space, pick.config))
        ordered.remove(picked)
        ordered.insert(first, picked)
    return ordered


def _kept(ordered: Sequence[Choice], limit: int) -> tuple[Choice, ...]:
    """Return the first `limit` choices, and behind them the best of each further space."""
    best = {choice.space: choice for choice in reversed(ordered)}
    return tuple(choice for i, choice in enumerate(ordered) if i < limit or best[choice.space] is choice)
