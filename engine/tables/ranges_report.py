"""What ranges of m lose, at the sizes they were made from and at those that were held out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.tables.ranges import RangeLimits, build_ranges, loss_at, of_one_gemm
from gemmtune.engine.tables.ranking import SHIP_MARGIN, Ranking

__all__ = ["RangesReport", "SizeLoss", "ranges_report"]


@dataclass(frozen=True, slots=True)
class SizeLoss:
    """What runs at a size, and what it loses there."""

    problem: Problem
    """The GEMM, at this size."""
    space: str
    """The space of the choice that serves it."""
    loss: float | None
    """Score over that of what the table would run with what was measured at the size, minus 1; None where it was not
    measured there itself."""
    in_range: bool
    """Whether a range serves it; else the vendor library does."""


@dataclass(frozen=True, slots=True)
class RangesReport:
    """The ranges of a table, and the other way to make them."""

    ranges: int
    """How many there are."""
    tuned: tuple[SizeLoss, ...]
    """At the sizes that were tuned."""
    probed: tuple[SizeLoss, ...]
    """At those between them that were measured, too, and not searched: probes and spots."""
    held_out: tuple[SizeLoss, ...]
    """At those that were held out."""
    otherwise: tuple[SizeLoss, ...]
    """The held-out ones if the ranges ended at powers of two; where they do, if they ended where measurements say."""


def ranges_report(
    rows: Sequence[RangeRow],
    rankings: Sequence[Ranking],
    limits: RangeLimits,
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Problem] = frozenset(),
    probed: Set[Problem] = frozenset(),
    spotted: Set[Problem] = frozenset(),
) -> RangesReport:
    """Look at every size of every GEMM that has ranges; arguments as `build_ranges` takes them."""
    other = RangeLimits(limits.worst, not limits.buckets)
    others = build_ranges(rankings, other, margin=margin, held_out=held_out, probed=probed, spotted=spotted)
    ranged = {of_one_gemm(row.problem) for row in rows}
    sizes = [ranking for ranking in rankings if of_one_gemm(ranking.problem) in ranged]
    checks = [ranking for ranking in sizes if ranking.problem in held_out]
    between = probed | spotted
    return RangesReport(
        ranges=len(rows),
        tuned=_losses(rows, (ranking for ranking in sizes if ranking.problem not in held_out | between), margin),
        probed=_losses(rows, (ranking for ranking in sizes if ranking.problem in between), margin),
        held_out=_losses(rows, checks, margin),
        otherwise=_losses(others, checks, margin),
    )


def _losses(rows: Sequence[RangeRow], rankings: Iterable[Ranking], margin: float) -> tuple[SizeLoss, ...]:
    return tuple(_at(rows, ranking, margin) for ranking in rankings)


def _at(rows: Sequence[RangeRow], ranking: Ranking, margin: float) -> SizeLoss:
    problem = ranking.problem
    for row in rows:
        if of_one_gemm(row.problem) == of_one_gemm(problem) and row.first <= problem.m <= row.last:
            choice = row.choice
            return SizeLoss(problem, choice.space, loss_at(ranking, choice.space, choice.config.json, margin), True)
    baseline = ranking.baseline
    if baseline is None:
        return SizeLoss(problem, "none", None, False)
    choice = baseline.choice
    return SizeLoss(problem, choice.space, loss_at(ranking, choice.space, choice.config.json, margin), False)
