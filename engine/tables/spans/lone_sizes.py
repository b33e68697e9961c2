"""Lone sizes: no range of a dynamic m serves a single size.

The guards of such a range would pin m, which torch refuses for a dimension marked dynamic (ConstraintViolationError).
In this order,

1. the size joins a neighbour, or the nearest size of a neighbour joins it, whichever loses less. The choice must have
   been measured there, not be slower than the baseline, and lose at most twice the limit;
2. the range reaches one m further, where nothing was measured; the last range begins one m earlier;
3. the neighbour that loses less serves the size, whatever it loses.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise

from gemmtune.engine.tables.spans.segments import LEAST_DYNAMIC_M, Segment, Size, Span, fast_enough, merged, spans

_LIMIT_FACTOR = 2
"""Largest loss at a size that would else be alone, in units of the limit."""


def without_lone_sizes(segments: list[Segment], worst: float) -> tuple[list[Segment], list[Span]]:
    """Return segments of a dynamic m, none of a single size, with the span of each; none if only one size is left.

    `worst` is the largest loss of a choice at a size, as a fraction.
    """
    while lone := _lone(spans(segments)):
        ways = [way for number in lone for way in _joined(segments, number, worst)]
        ways = [(loss, way) for loss, way in ways if loss <= _LIMIT_FACTOR * worst]
        ways = [(loss, way) for loss, way in ways if len(_lone(spans(way))) < len(lone)]
        if not ways:
            break
        _, segments = min(ways, key=lambda way: way[0])
    found = _extended(segments, spans(segments))
    while (lone := _lone(found)) and len(segments) > 1:
        segments = _joined_to_neighbour(segments, lone[0])
        found = _extended(segments, spans(segments))
    return ([], []) if lone else (segments, found)


def _lone(found: Sequence[Span]) -> list[int]:
    """Return the indices of spans with fewer than two sizes from 2 on."""
    return [number for number, (first, last) in enumerate(found) if max(first, LEAST_DYNAMIC_M) >= last]


def _joined(segments: Sequence[Segment], number: int, worst: float) -> Iterator[tuple[float, list[Segment]]]:
    """Yield the ways to give a lone segment company, each with its largest loss."""
    lone = segments[number]
    for other in _neighbours(segments, number):
        nearest = segments[other].sizes[0 if other > number else -1]
        for sizes, giver, taker in ((lone.sizes, number, other), ((nearest,), other, number)):
            key = segments[taker].key
            if all(key in fast_enough(size, worst) for size in sizes):
                yield max(size.losses[key] for size in sizes), _moved(segments, sizes, giver, taker)


def _joined_to_neighbour(segments: Sequence[Segment], number: int) -> list[Segment]:
    """Move a segment's sizes to the neighbour that loses less there; an unmeasured loss counts as infinite."""
    sizes = segments[number].sizes

    def loss(other: int) -> float:
        return max(size.losses.get(segments[other].key, math.inf) for size in sizes)

    return _moved(segments, sizes, number, min(_neighbours(segments, number), key=loss))


def _neighbours(segments: Sequence[Segment], number: int) -> list[int]:
    return [other for other in (number + 1, number - 1) if 0 <= other < len(segments)]


def _moved(segments: Sequence[Segment], sizes: Sequence[Size], giver: int, taker: int) -> list[Segment]:
    """Move sizes from one segment to another; drop an empty segment and merge neighbours of one choice."""
    contents = [list(segment.sizes) for segment in segments]
    contents[giver] = [size for size in contents[giver] if size not in sizes]
    contents[taker] = sorted([*contents[taker], *sizes], key=lambda size: size.m)
    return merged(Segment(tuple(inside), segment.key) for segment, inside in zip(segments, contents, strict=True))


def _extended(segments: Sequence[Segment], found: Sequence[Span]) -> list[Span]:
    """Extend each lone span by one m at which nothing was measured; the last one begins one m earlier."""
    ends = [found[0][0] - 1, *(last for _, last in found)]
    for number, (segment, other) in enumerate(pairwise(segments), start=1):
        if max(ends[number - 1] + 1, LEAST_DYNAMIC_M) >= ends[number] and ends[number] + 1 < other.sizes[0].m:
            ends[number] += 1
        if number == len(segments) - 1 and ends[number] + 1 == ends[-1] and ends[number] > segment.sizes[-1].m:
            ends[number] -= 1
    return [(before + 1, last) for before, last in pairwise(ends)]
