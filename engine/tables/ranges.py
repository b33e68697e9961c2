"""Ranges of m: which choice serves which sizes of one GEMM, from measurements at a few of them.

Some sizes were tuned; at others, the probes between, the best of both neighbours was measured and nothing
searched. Both have a say alike: a kernel's time does not always grow with m, so that what wins at two sizes may lose to
the library between them (4096x14336, nt: a tile of 64 rows takes 35.8 µs at m = 32 and 32.8 at 64, cuBLAS 33.1 at 32;
H200, 2026-11-22). At spots, inside of a range that ran a kernel, that kernel was measured beside the library alone: it
goes on serving them unless it loses more than the limit there.

A range is served by one choice that was measured at every size in it, and loses little at each. Where it ends between
two sizes is where the losses of its choice and of the next one's should cross, of those that grow and fall with the
logarithm of m; rounded to a power of two, so that the products of one model are cut at the same m. Where none lies
between, as between probes, that is the lesser size: what is above it takes as many tiles of rows as the greater, if
they are no smaller than the gap. Of cuts that lose the same, those at powers of two are taken. Beyond the greatest m
that was tuned, and below the least, nothing is served.

Where m is dynamic, no range is of one size alone, and none begins at 3 and leaves 2 alone: the guards of its graph
would pin m, which torch refuses for a dimension that was marked dynamic (ConstraintViolationError at m = 2; torch 2.11,
H200, 2026-11-22). The size goes to a neighbour, or one of the neighbour's joins it: of what was measured there and is
not slower than the library, what loses least, up to twice the limit. Else the range reaches one m further, where
nothing was measured; the last one begins one earlier. Where there is no such m, the neighbour that loses less serves
the size.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import pairwise

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import RangeRow
from gemmtune.engine.tables.m_buckets import rounded_up
from gemmtune.engine.tables.ranking import SHIP_MARGIN, Contender, Ranking

__all__ = ["RangeLimits", "build_ranges", "loss_at", "of_one_gemm"]

_Key = tuple[str, str]
"""A choice wherever it runs: its space, and its config as JSON."""
_Span = tuple[int, int]
"""The least and the greatest m of a range."""
_LENIENCE = 2
"""How much more than the limit a choice may lose at a size that would else be alone."""
_LEAST = 2  # Dynamo compiles m = 0 and m = 1 for themselves


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """How ranges are made."""

    worst: float = 0.02
    """What a choice may lose at an m that was measured, as a fraction: within what one config spreads across GPUs of
    one model. Twice that, or what it must be, where a dynamic m would have a range of one size."""
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
    spotted: bool
    """Whether one kernel and the baseline were measured there and nothing else."""


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
        return tuple((size.m, size.losses[self.key]) for size in self.measured if size.probed is probed)

    @property
    def measured(self) -> tuple[_Size, ...]:
        """The sizes at which the choice was measured: all, except a lone one that nothing measured there could join."""
        return tuple(size for size in self.sizes if self.key in size.losses)


def build_ranges(
    rankings: Iterable[Ranking],
    limits: RangeLimits,
    *,
    margin: float = SHIP_MARGIN,
    held_out: Set[Problem] = frozenset(),
    probed: Set[Problem] = frozenset(),
    spotted: Set[Problem] = frozenset(),
) -> tuple[RangeRow, ...]:
    """The fewest ranges, and of so few those that lose least, for each GEMM that was tuned at two sizes or more.

    A choice serves an m that was tuned or probed only if it was measured there, loses at most `limits.worst` of the
    score of what the table runs there, and is not slower than the baseline: by its score, and with the upper end of its
    interval by no more than `limits.worst`. At an m that was spotted the loss alone decides. What is in `held_out` has
    no say; ranges carry what they lose there.

    Args:
        rankings: of all problems.
        limits: what a range may lose.
        margin: lead over the baseline that a row needs to ship.
        held_out: problems that check the ranges.
        probed: problems at which a few choices were measured and nothing was searched.
        spotted: problems at which the kernel of a range was measured beside the baseline, and nothing else.
    """
    groups: defaultdict[Problem, list[Ranking]] = defaultdict(list)
    for ranking in rankings:
        groups[of_one_gemm(ranking.problem)].append(ranking)
    found: list[RangeRow] = []
    for _, group in sorted(groups.items(), key=lambda item: repr(item[0])):
        by_m = sorted(group, key=lambda ranking: ranking.problem.m)
        sizes = [
            _size(ranking, margin, probed=ranking.problem in probed, spotted=ranking.problem in spotted)
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


def _size(ranking: Ranking, margin: float, *, probed: bool, spotted: bool) -> _Size:
    served = _served(ranking, margin)
    losses = {_key(c): max(0.0, c.score / served.score - 1) for c in ranking.contenders}
    return _Size(ranking.problem.m, ranking, served, losses, probed or spotted, spotted)


def _served(ranking: Ranking, margin: float) -> Contender:
    baseline = ranking.baseline
    return ranking.fastest if baseline is None or ranking.may_ship(ranking.fastest, margin) else baseline


def _key(contender: Contender) -> _Key:
    return contender.choice.space, contender.choice.config.json


def _ranges(
    sizes: Sequence[_Size], checks: Sequence[Ranking], limits: RangeLimits, margin: float
) -> Iterable[RangeRow]:
    segments = _buckets(sizes) if limits.buckets else _fewest(sizes, limits.worst)
    spans = _spans(segments, limits)
    if _is_dynamic(segments):
        segments, spans = _none_alone(segments, limits)
    for segment, (first, last) in zip(segments, spans, strict=True):
        greatest = segment.measured[-1]
        inside = [ranking for ranking in checks if first <= ranking.problem.m <= last]
        losses = [(ranking.problem.m, loss_at(ranking, *segment.key, margin)) for ranking in inside]
        yield RangeRow(
            problem=greatest.ranking.problem,
            first=first,
            last=last,
            choice=next(c.choice for c in greatest.ranking.contenders if _key(c) == segment.key),
            tuned=segment.at(probed=False),
            held_out=tuple((m, loss) for m, loss in losses if loss is not None),
            probed=segment.at(probed=True),
        )


def _spans(segments: Sequence[_Segment], limits: RangeLimits) -> list[_Span]:
    least = segments[0].sizes[0].m
    first = rounded_up(least) // 2 + 1 if limits.buckets else least
    if _is_dynamic(segments) and first == _LEAST + 1:
        first = _LEAST
    ends = [_bucket_edge(a) if limits.buckets else _edge(a, b) for a, b in pairwise(segments)]
    ends = [first - 1, *ends, segments[-1].sizes[-1].m]
    return [(before + 1, last) for before, last in pairwise(ends)]


def _is_dynamic(segments: Sequence[_Segment]) -> bool:
    return segments[0].sizes[0].ranking.problem.dynamic_m


def _none_alone(segments: list[_Segment], limits: RangeLimits) -> tuple[list[_Segment], list[_Span]]:
    """The same without ranges of a single size."""
    while alone := _alone(_spans(segments, limits)):
        ways = (way for number in alone for way in _joined(segments, number, limits))
        cheap = (way for way in ways if way[0] <= _LENIENCE * limits.worst)
        fewer = [way for way in cheap if len(_alone(_spans(way[1], limits))) < len(alone)]
        if not fewer:
            break
        _, segments = min(fewer, key=lambda way: way[0])
    spans = _widened(segments, _spans(segments, limits))
    while (alone := _alone(spans)) and len(segments) > 1:
        segments = _given_away(segments, alone[0])
        spans = _widened(segments, _spans(segments, limits))
    return ([], []) if alone else (segments, spans)


def _alone(spans: Sequence[_Span]) -> list[int]:
    """Which of them have a single size from 2 on, or none."""
    return [number for number, (first, last) in enumerate(spans) if max(first, _LEAST) >= last]


def _joined(segments: Sequence[_Segment], number: int, limits: RangeLimits) -> Iterator[tuple[float, list[_Segment]]]:
    """The ways to leave one segment not alone without running what is slower than the library: the loss, the segments.

    A bucket is given away whole.
    """
    lone = segments[number]
    for other in _neighbours(segments, number):
        near = segments[other].sizes[0 if other > number else -1]
        ways = [(lone.sizes, number, other), ((near,), other, number)]
        for sizes, giver, taker in ways[:1] if limits.buckets else ways:
            key = segments[taker].key
            if all(key in _fast_enough(size, limits.worst) for size in sizes):
                yield max(size.losses[key] for size in sizes), _moved(segments, sizes, giver, taker)


def _neighbours(segments: Sequence[_Segment], number: int) -> list[int]:
    return [other for other in (number + 1, number - 1) if 0 <= other < len(segments)]


def _moved(segments: Sequence[_Segment], sizes: Sequence[_Size], giver: int, taker: int) -> list[_Segment]:
    of = [list(segment.sizes) for segment in segments]
    of[giver] = [size for size in of[giver] if size not in sizes]
    of[taker] = sorted([*of[taker], *sizes], key=lambda size: size.m)
    found: list[_Segment] = []
    for segment, its in zip(segments, of, strict=True):
        if its and found and found[-1].key == segment.key:
            found[-1] = _Segment((*found[-1].sizes, *its), segment.key)
        elif its:
            found.append(_Segment(tuple(its), segment.key))
    return found


def _given_away(segments: Sequence[_Segment], number: int) -> list[_Segment]:
    """To the neighbour that loses less there, whatever that is; of what was not measured, to the next one."""
    sizes = segments[number].sizes

    def loss(other: int) -> float:
        return max(size.losses.get(segments[other].key, math.inf) for size in sizes)

    return _moved(segments, sizes, number, min(_neighbours(segments, number), key=loss))


def _widened(segments: Sequence[_Segment], spans: Sequence[_Span]) -> list[_Span]:
    """Each lone range one m longer, where nothing was measured there; the last one begins one earlier."""
    ends = [spans[0][0] - 1, *(last for _, last in spans)]
    for number, (segment, other) in enumerate(pairwise(segments), start=1):
        if max(ends[number - 1] + 1, _LEAST) >= ends[number] and ends[number] + 1 < other.sizes[0].m:
            ends[number] += 1
        if number == len(segments) - 1 and ends[number] + 1 == ends[-1] and ends[number] > segment.sizes[-1].m:
            ends[number] -= 1
    return [(before + 1, last) for before, last in pairwise(ends)]


def _fewest(sizes: Sequence[_Size], worst: float) -> list[_Segment]:
    """The sizes cut into the fewest segments, and of so few those that lose least: exact, by dynamic programming.

    Of those that lose the same, the ones with the fewest cuts off the powers of two.
    """
    best: list[tuple[int, float, int, list[_Segment]]] = [(0, 0.0, 0, [])]
    for end in range(1, len(sizes) + 1):
        found = []
        for start in range(end):
            segment = _served_by_one(sizes[start:end], worst)
            if segment is not None:
                count, loss, odd, before = best[start]
                off = start > 0 and rounded_up(sizes[start - 1].m) >= sizes[start].m
                found.append((count + 1, loss + segment.loss, odd + off, [*before, segment]))
        best.append(min(found, key=lambda cut: cut[:3]))  # a size alone is served by its own choice
    return best[-1][3]


def _served_by_one(sizes: Sequence[_Size], worst: float) -> _Segment | None:
    keys = set.intersection(*(_admissible(size, worst) for size in sizes))
    if not keys:
        return None
    return min((_Segment(tuple(sizes), key) for key in keys), key=lambda segment: (segment.loss, segment.key))


def _admissible(size: _Size, worst: float) -> set[_Key]:
    fast_enough = size.losses.keys() if size.spotted else _fast_enough(size, worst)
    return {_key(size.served)} | {key for key in fast_enough if size.losses[key] <= worst}


def _fast_enough(size: _Size, worst: float) -> set[_Key]:
    return {_key(c) for c in size.ranking.contenders if _not_slower(c, size.ranking.baseline, worst)}


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
