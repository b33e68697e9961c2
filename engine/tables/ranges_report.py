"""Losses of ranges of m, at the sizes that made them and at held-out sizes."""

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
    """Choice that serves one size, with its loss."""

    problem: Problem
    """Problem of this size."""
    space: str
    """Space of the choice that serves the size; `none` without a range and a baseline."""
    loss: float | None
    """Score over that of the choice the table would run with the measurements at this size, minus 1; None where the
    serving choice was not measured."""
    in_range: bool
    """Whether a range serves the size; else the vendor library does."""


@dataclass(frozen=True, slots=True)
class RangesReport:
    """Losses of a table's ranges, and of ranges with the other kind of edges."""

    ranges: int
    """Number of ranges in the table."""
    tuned: tuple[SizeLoss, ...]
    """Losses at the tuned sizes."""
    probed: tuple[SizeLoss, ...]
    """Losses at sizes that were measured and not searched."""
    held_out: tuple[SizeLoss, ...]
    """Losses at the held-out sizes."""
    otherwise: tuple[SizeLoss, ...]
    """Losses at the held-out sizes with powers of two as edges; with measured edges if the table has the former."""


def ranges_report(
    rows: Sequence[RangeRow],
    rankings: Sequence[Ranking],
    limits: RangeLimits,
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Problem] = frozenset(),
    probed: Set[Problem] = frozenset(),
    interior: Set[Problem] = frozenset(),
) -> RangesReport:
    """Report the losses at every size of every GEMM that has ranges.

    Args:
        rows: ranges that `build_ranges` built with the other arguments.
        rankings: rankings of all problems.
        limits: limits of these ranges.
        margin: lead over the baseline that a row needs to ship another choice, as a fraction.
        held_out: problems that check the ranges.
        probed: problems at which a few choices were measured and nothing was searched.
        interior: problems at which only the kernel of a range was measured, beside the baseline.
    """
    other = RangeLimits(limits.worst, not limits.buckets)
    others = build_ranges(rankings, other, margin=margin, held_out=held_out, probed=probed, interior=interior)
    ranged = {of_one_gemm(row.problem) for row in rows}
    sizes = [ranking for ranking in rankings if of_one_gemm(ranking.problem) in ranged]
    checks = [ranking for ranking in sizes if ranking.problem in held_out]
    between = probed | interior
    return RangesReport(
        ranges=len(rows),
        tuned=_losses(rows, (ranking for ranking in sizes if ranking.problem not in held_out | between), margin),
        probed=_losses(rows, (ranking for ranking in sizes if ranking.problem in between), margin),
        held_out=_losses(rows, checks, margin),
        otherwise=_losses(others, checks, margin),
    )


def _losses(rows: Sequence[RangeRow], rankings: Iterable[Ranking], margin: float) -> tuple[SizeLoss, ...]:
    return tuple(_size_loss(rows, ranking, margin) for ranking in rankings)


def _size_loss(rows: Sequence[RangeRow], ranking: Ranking, margin: float) -> SizeLoss:
    problem, gemm = ranking.problem, of_one_gemm(ranking.problem)
    serving = (row.choice for row in rows if of_one_gemm(row.problem) == gemm and row.first <= problem.m <= row.last)
    choice = next(serving, None)
    in_range = choice is not None
    if choice is None and ranking.baseline is not None:
        choice = ranking.baseline.choice
    if choice is None:
        return SizeLoss(problem, "none", None, in_range=False)
    return SizeLoss(problem, choice.space, loss_at(ranking, choice.space, choice.config.json, margin), in_range)
