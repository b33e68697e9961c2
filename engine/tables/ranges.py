"""Ranges of m: which choice serves which sizes of one GEMM, from measurements at a few of them.

Some sizes were tuned; at others, the powers of two between, the best of both neighbours was measured and nothing
searched. Both have a say alike: a kernel's time does not always grow with m, so that what wins at two sizes may lose to
the library between them (4096x14336, nt: a tile of 64 rows takes 35.8 µs at m = 32 and 32.8 at 64, cuBLAS 33.1 at 32;
H200, 2026-11-22).

A range is served by one choice that was measured at every size in it, and loses little at each. Where it ends between
two sizes is where the losses of its choice and of the next one's should cross, of those that grow and fall with the
logarithm of m; rounded to a power of two, so that the products of one model are cut at the same m. Beyond the greatest
m that was tuned, and below the least, nothing is served.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.tables.ranking import SHIP_MARGIN, Contender, Ranking
from gemmtune.engine.tables.rounding import rounded_up

__all__ = ["RangeLimits", "build_ranges", "loss_at", "of_one_gemm"]

_Key = tuple[str, str]
"""A choice wherever it runs: its space, and its config as JSON."""


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """How ranges are made."""

    worst: float = 0.02
    """What a choice may lose at an m that was measured, as a fraction: within what one config spreads across GPUs of
    one model."""
    buckets: bool = False
    """Whether ranges reach from one power of two to the next, whatever that loses."""

    def __post_init__(self) -> None:
        """Refuse what is below 0."""
        if not self.worst >= 0:
            raise UsageError(f"ranges: worst={self.worst} is not a fraction from 0 on, such as 0.02")


@dataclass(frozen=True, slots=True)
class _Size:
    """One m that was tuned or probed, and what serves it."""

    m: int
    ranking: Ranking
    served: Contender
    """What the table runs there."""
    losses: Mapping[_Key, float]
    """What each choice that was measured there loses."""
    probed: bool
    """Whether nothing was searched there."""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Sizes next to each other, and the choice that serves them."""

    sizes: tuple[_Size, ...]
    key: _Key

    @property
    def loss(self) -> float:
        return sum(size.ranking.problem.weight * size.losses[self.key] for size in self.sizes)

    def at(self, *, probed: bool) -> tuple[tuple[int, float], ...]:
        """Its sizes that were probed, or those that were tuned, and what the choice loses at each."""
        return tuple((size.m, size.losses[self.key]) for size in self.sizes if size.probed is probed)


def build_ranges(
    rankings: Iterable[Ranking],
    limits: RangeLimits,
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Problem] = frozenset(),
    probed: Set[Problem] = frozenset(),
) -> tuple[RangeRow, ...]:
    """The fewest ranges, and of so few those that lose least, for each GEMM that was tuned at two sizes or more.

    A choice serves an m that was tuned or probed only if it was measured there, loses at most `limits.worst` of the
    score of what the table runs there, and is not slower than the baseline: by its score, and with the upper end of its
    interval by no more than `limits.worst`. What is in `held_out` has no say; ranges carry what they lose there.

    Args:
        rankings: of all problems.
        limits: what a range may lose.
        margin: lead over the baseline that a row needs to ship.
        held_out: problems that check the ranges.
        probed: problems at which a few choices were measured and nothing was searched.
    """
    groups: defaultdict[Problem, list[Ranking]] = defaultdict(list)
    for ranking in rankings:
        groups[of_one_gemm(ranking.problem)].append(ranking)
    found: list[RangeRow] = []
    for _, group in sorted(groups.items(), key=lambda item: repr(item[0])):
        by_m = sorted(group, key=lambda ranking: ranking.problem.m)
        sizes = [
            _size(ranking, margin, probed=ranking.problem in probed)
            for ranking in by_m
            if ranking.problem not in held_out
        ]
        if sum(not size.probed for size in sizes) > 1:
            checks = [ranking for ranking in by_m if ranking.problem in held_out]
            found += _ranges(sizes, checks, limits, margin)
    return tuple(found)


def of_one_gemm(problem: Problem) -> Problem:
    """What problems that differ in m alone have in common."""
    return replace(problem, m=1, weight=1.0)


def loss_at(ranking: Ranking, space: str, config_json: str, margin: float = SHIP_MARGIN) -> float | None:
    """What a choice loses to what the table runs at a size, as a fraction; None where it was not measured there."""
    served = _served(ranking, margin)
    for contender in ranking.contenders:
        if _key(contender) == (space, config_json):
            return max(0.0, contender.score / served.score - 1)
    return None


def _size(ranking: Ranking, margin: float, *, probed: bool) -> _Size:
    served = _served(ranking, margin)
    losses = {_key(c): max(0.0, c.score / served.score - 1) for c in ranking.contenders}
    return _Size(ranking.problem.m, ranking, served, losses, probed)


def _served(ranking: Ranking, margin: float) -> Contender:
    baseline = ranking.baseline
    return ranking.fastest if baseline is None or ranking.may_ship(ranking.fastest, margin) else baseline


def _key(contender: Contender) -> _Key:
    return contender.choice.space, contender.choice.config.json


def _ranges(
    sizes: Sequence[_Size], checks: Sequence[Ranking], limits: RangeLimits, margin: float
) -> Iterable[RangeRow]:
    segments = _buckets(sizes) if limits.buckets else _fewest(sizes, limits.worst)
    least = segments[0].sizes[0].m
    ends = [rounded_up(least) // 2 if limits.buckets else least - 1]
    ends += [_bucket_edge(a) if limits.buckets else _edge(a, b) for a, b in pairwise(segments)]
    ends.append(segments[-1].sizes[-1].m)
    for segment, (before, last) in zip(segments, pairwise(ends), strict=True):
        greatest = segment.sizes[-1]
        inside = [ranking for ranking in checks if before < ranking.problem.m <= last]
        losses = [(ranking.problem.m, loss_at(ranking, *segment.key, margin)) for ranking in inside]
        yield RangeRow(
            problem=greatest.ranking.problem,
            first=before + 1,
            last=last,
            choice=next(c.choice for c in greatest.ranking.contenders if _key(c) == segment.key),
            tuned=segment.at(probed=False),
            held_out=tuple((m, loss) for m, loss in losses if loss is not None),
            probed=segment.at(probed=True),
        )


def _fewest(sizes: Sequence[_Size], worst: float) -> list[_Segment]:
    """The sizes cut into the fewest segments, and of so few those that lose least: exact, by dynamic programming."""
    best: list[tuple[int, float, list[_Segment]]] = [(0, 0.0, [])]
    for end in range(1, len(sizes) + 1):
        found = []
        for start in range(end):
            segment = _served_by_one(sizes[start:end], worst)
            if segment is not None:
                count, loss, before = best[start]
                found.append((count + 1, loss + segment.loss, [*before, segment]))
        best.append(min(found, key=lambda cut: cut[:2]))  # a size alone is served by its own choice
    return best[-1][2]


def _served_by_one(sizes: Sequence[_Size], worst: float) -> _Segment | None:
    keys = set.intersection(*(_admissible(size, worst) for size in sizes))
    if not keys:
        return None
    return min((_Segment(tuple(sizes), key) for key in keys), key=lambda segment: (segment.loss, segment.key))


def _admissible(size: _Size, worst: float) -> set[_Key]:
    found = {_key(size.served)}
    for contender in size.ranking.contenders:
        if size.losses[_key(contender)] <= worst and _not_slower(contender, size.ranking.baseline, worst):
            found.add(_key(contender))
    return found


def _not_slower(contender: Contender, baseline: Contender | None, worst: float) -> bool:
    """By its score, and but little with the upper end of its interval: few launches may flatter."""
    if baseline is None or contender is baseline:
        return True
    upper = contender.score * contender.choice.high_ns / contender.choice.time_ns
    return contender.score <= baseline.score and upper <= baseline.score * (1 + worst)


def _edge(one: _Segment, other: _Segment) -> int:
    """The greatest m of the first of two segments."""
    left, right = one.sizes[-1], other.sizes[0]
    loss_left = right.losses.get(one.key)
    if loss_left is None:  # nothing is known of it beyond its own sizes
        return left.m
    # Where the other was not measured, its time at its own least m stands for it: fewer rows are seldom more work.
    own = next(c for c in right.ranking.contenders if _key(c) == other.key)
    loss_right = left.losses.get(other.key, max(0.0, own.score / left.served.score - 1))
    crossing = loss_right / (loss_left + loss_right) if loss_left + loss_right > 0 else 0.0
    wanted = math.log2(left.m) + crossing * (math.log2(right.m) - math.log2(left.m))
    powers = (1 << e for e in range(left.m.bit_length() - 1, right.m.bit_length() + 1))
    ends = {left.m, *(p for p in powers if left.m <= p < right.m)}
    return min(sorted(ends), key=lambda end: abs(math.log2(end) - wanted))


def _buckets(sizes: Sequence[_Size]) -> list[_Segment]:
    """One segment for the sizes of each power of two, neighbours of one choice as one; what loses least at worst."""
    of_bucket: defaultdict[int, list[_Size]] = defaultdict(list)
    for size in sizes:
        of_bucket[rounded_up(size.m)].append(size)
    segments: list[_Segment] = []
    for bucket in sorted(of_bucket):
        inside = of_bucket[bucket]
        keys = set.intersection(*(set(size.losses) for size in inside))
        if not keys:  # nothing was measured at all of them: the greatest decides
            inside = inside[-1:]
            keys = set(inside[0].losses)
        key = min(keys, key=lambda k: (max(size.losses[k] for size in inside), k != _key(inside[-1].served), k))
        if segments and segments[-1].key == key:
            segments[-1] = _Segment((*segments[-1].sizes, *inside), key)
        else:
            segments.append(_Segment(tuple(inside), key))
    return segments


def _bucket_edge(segment: _Segment) -> int:
    return rounded_up(segment.sizes[-1].m)
