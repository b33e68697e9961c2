"""Ranges of sizes: the choice that serves each size of one series, made from measurements at a few, and its losses.

| sizes | measured there | may serve, within the limit |
|---|---|---|
| tuned | configs of a search, and the baseline | every choice that is not slower than the baseline. |
| probed | the best of both neighbours, and the baseline | every choice that is not slower than the baseline. |
| interior | the kernel of a range, and the baseline | every choice. |
| held out | choices that serve the size | none; the losses there are reported. |
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass

from gemmtune.engine.records.table import SHIP_MARGIN, RangeRow
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.spans.lone_sizes import without_lone_sizes
from gemmtune.engine.tables.spans.segments import Segment, Size, Span, key_of, make_segments, spans


@dataclass(frozen=True, slots=True)
class SizeLoss:
    """Choice that serves one size, with its loss."""

    problem: Workload
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
    """Losses of a table's ranges."""

    ranges: int
    """Number of ranges in the table."""
    tuned: tuple[SizeLoss, ...]
    """Losses at the tuned sizes."""
    probed: tuple[SizeLoss, ...]
    """Losses at sizes that were measured and not searched."""
    held_out: tuple[SizeLoss, ...]
    """Losses at the held-out sizes."""


def build_ranges(
    rankings: Iterable[Ranking],
    limits: RangeLimits,
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Workload] = frozenset(),
    probed: Set[Workload] = frozenset(),
    interior: Set[Workload] = frozenset(),
) -> tuple[RangeRow, ...]:
    """Build the fewest ranges for each series that was tuned at two sizes or more.

    Of as few ranges, those with the least weighted loss are built.

    Args:
        rankings: rankings of all problems, in any order.
        limits: largest loss.
        margin: lead over the baseline that a row needs to ship another choice, as a fraction.
        held_out: problems that check the ranges and do not shape them; ranges carry their losses.
        probed: problems at which a few choices were measured and nothing was searched.
        interior: problems at which only the kernel of a range was measured, beside the baseline.
    """
    groups: defaultdict[Workload, list[Ranking]] = defaultdict(list)
    for ranking in rankings:
        groups[ranking.problem.series].append(ranking)
    found: list[RangeRow] = []
    for _, group in sorted(groups.items(), key=lambda item: repr(item[0])):
        by_size = sorted(group, key=lambda ranking: ranking.problem.size)
        sizes = [
            _size(ranking, margin, probed=ranking.problem in probed, interior=ranking.problem in interior)
            for ranking in by_size
            if ranking.problem not in held_out
        ]
        if sum(not size.probed for size in sizes) > 1:
            checks = [ranking for ranking in by_size if ranking.problem in held_out]
            found += _ranges(sizes, checks, limits, margin)
    return tuple(found)


def ranges_report(
    rows: Sequence[RangeRow],
    rankings: Sequence[Ranking],
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Workload] = frozenset(),
    probed: Set[Workload] = frozenset(),
) -> RangesReport:
    """Report the losses at every size of every series that has ranges; see `build_ranges`."""
    ranged = {row.problem.series for row in rows}
    sizes = [ranking for ranking in rankings if ranking.problem.series in ranged]
    checks = [ranking for ranking in sizes if ranking.problem in held_out]
    return RangesReport(
        ranges=len(rows),
        tuned=tuple(_size_loss(rows, each, margin) for each in sizes if each.problem not in held_out | probed),
        probed=tuple(_size_loss(rows, each, margin) for each in sizes if each.problem in probed),
        held_out=tuple(_size_loss(rows, each, margin) for each in checks),
    )


def loss_at(ranking: Ranking, space: str, config_json: str, margin: float = SHIP_MARGIN) -> float | None:
    """Return a choice's loss against the choice that the table runs at a size, as a fraction.

    Returns:
        The loss from 0 on; None if the choice was not measured at the size.
    """
    return _losses(ranking, _served_by(ranking, margin)).get((space, config_json))


def _served_by(ranking: Ranking, margin: float) -> Contender:
    baseline = ranking.baseline
    return ranking.fastest if baseline is None or ranking.may_ship(ranking.fastest, margin) else baseline


def _losses(ranking: Ranking, served_by: Contender) -> dict[tuple[str, str], float]:
    return {key_of(c): max(0.0, c.score / served_by.score - 1) for c in ranking.contenders}


def _size(ranking: Ranking, margin: float, *, probed: bool, interior: bool) -> Size:
    served_by = _served_by(ranking, margin)
    losses = _losses(ranking, served_by)
    return Size(ranking.problem.size, ranking, served_by, losses, probed=probed or interior, interior=interior)


def _ranges(sizes: Sequence[Size], checks: Sequence[Ranking], limits: RangeLimits, margin: float) -> Iterator[RangeRow]:
    segments = make_segments(sizes, limits.worst)
    if segments[0].is_dynamic:
        segments, found = without_lone_sizes(segments, limits.worst)
    else:
        found = spans(segments)
    for segment, span in zip(segments, found, strict=True):
        yield _range_row(segment, span, checks, margin)


def _range_row(segment: Segment, span: Span, checks: Sequence[Ranking], margin: float) -> RangeRow:
    first, last = span
    greatest = segment.measured[-1].ranking
    inside = [ranking for ranking in checks if first <= ranking.problem.size <= last]
    held_out = [(ranking.problem.size, loss_at(ranking, *segment.key, margin)) for ranking in inside]
    return RangeRow(
        problem=greatest.problem,
        first=first,
        last=last,
        choice=next(c.choice for c in greatest.contenders if key_of(c) == segment.key),
        tuned=tuple((size.m, size.losses[segment.key]) for size in segment.measured if not size.probed),
        held_out=tuple((m, loss) for m, loss in held_out if loss is not None),
        probed=tuple((size.m, size.losses[segment.key]) for size in segment.measured if size.probed),
    )


def _size_loss(rows: Sequence[RangeRow], ranking: Ranking, margin: float) -> SizeLoss:
    problem, series = ranking.problem, ranking.problem.series
    serving = (row.choice for row in rows if row.problem.series == series and row.first <= problem.size <= row.last)
    choice = next(serving, None)
    in_range = choice is not None
    if choice is None and ranking.baseline is not None:
        choice = ranking.baseline.choice
    if choice is None:
        return SizeLoss(problem, "none", None, in_range=False)
    return SizeLoss(problem, choice.space, loss_at(ranking, choice.space, choice.config.json, margin), in_range)
