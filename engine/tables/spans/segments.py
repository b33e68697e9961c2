"""Segments: neighbouring sizes of one GEMM that one choice serves, and the m at which each segment ends.

A kernel's time does not always grow with m, so a choice serves only sizes at which it was measured and loses little.
Between two segments the end lies where the losses of both choices should cross, in the logarithm of m. It is rounded to
a power of two, if one lies between; else the lesser size is the end. Nothing is served below the least size or above
the greatest.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from gemmtune.engine.tables.ranking import Contender, Ranking
from gemmtune.engine.tables.spans.m_buckets import rounded_up

Key = tuple[str, str]
"""Identity of a choice at any m: its space, and its config as JSON."""
Span = tuple[int, int]
"""Least and greatest m of a range."""
LEAST_DYNAMIC_M = 2
"""Least m of a graph with a dynamic m: Dynamo compiles m = 0 and m = 1 for themselves."""


@dataclass(frozen=True, slots=True)
class Size:
    """One m at which choices were measured."""

    m: int
    """Rows of A, the size."""
    ranking: Ranking
    """Contenders measured at this m."""
    served_by: Contender
    """Contender that the table runs at this m alone."""
    losses: Mapping[Key, float]
    """Loss of each measured choice against `served_by`, as a fraction."""
    probed: bool
    """Whether nothing was searched at this m."""
    interior: bool
    """Whether only one kernel and the baseline were measured at this m."""


@dataclass(frozen=True, slots=True)
class Segment:
    """Neighbouring sizes and the choice that serves them."""

    sizes: tuple[Size, ...]
    """Sizes by m, at least one."""
    key: Key
    """Choice that serves all of them."""

    @property
    def loss(self) -> float:
        """Sum of the choice's losses, each times the weight of its problem."""
        return sum(size.ranking.problem.weight * size.losses[self.key] for size in self.sizes)

    @property
    def measured(self) -> tuple[Size, ...]:
        """Sizes at which the choice was measured: all but a lone size that joined without a measurement."""
        return tuple(size for size in self.sizes if self.key in size.losses)

    @property
    def is_dynamic(self) -> bool:
        """Whether kernels of this series take the size at launch."""
        return self.sizes[0].ranking.problem.takes_size_at_launch


def key_of(contender: Contender) -> Key:
    """Return the contender's space and config."""
    return contender.choice.space, contender.choice.config.json


def spans(segments: Sequence[Segment]) -> list[Span]:
    """Return the least and greatest m that each segment serves; together they leave no gap.

    Of a dynamic m, a first segment from 3 on begins at 2, which would else be a lone size.
    """
    first = segments[0].sizes[0].m
    if segments[0].is_dynamic and first == LEAST_DYNAMIC_M + 1:
        first = LEAST_DYNAMIC_M
    ends = [first - 1, *(_end(one, other) for one, other in pairwise(segments)), segments[-1].sizes[-1].m]
    return [(before + 1, last) for before, last in pairwise(ends)]


def fast_enough(size: Size, worst: float) -> set[Key]:
    """Return the choices not slower than the baseline, whose interval exceeds it by `worst` at most."""
    baseline = size.ranking.baseline
    return {key_of(c) for c in size.ranking.contenders if baseline is None or _not_slower(c, baseline, worst)}


def _not_slower(contender: Contender, baseline: Contender, worst: float) -> bool:
    upper = contender.score * contender.choice.high_ns / contender.choice.time_ns
    ahead = contender.score <= baseline.score and upper <= baseline.score * (1 + worst)
    return contender is baseline or ahead


def make_segments(sizes: Sequence[Size], worst: float) -> list[Segment]:
    """Cut sizes into the fewest segments, each served by one choice, by dynamic programming.

    Of as few segments, take those of the least loss, then those with the fewest ends off the powers of two.
    """
    best: list[tuple[int, float, int, list[Segment]]] = [(0, 0.0, 0, [])]
    for end in range(1, len(sizes) + 1):
        found = []
        for start in range(end):
            segment = _of_least_loss(sizes[start:end], worst)
            if segment is not None:
                count, loss, off_powers, before = best[start]
                off = start > 0 and rounded_up(sizes[start - 1].m) >= sizes[start].m
                found.append((count + 1, loss + segment.loss, off_powers + off, [*before, segment]))
        best.append(min(found, key=lambda cut: cut[:3]))  # never empty: one size is served by its own choice
    return best[-1][3]


def _of_least_loss(sizes: Sequence[Size], worst: float) -> Segment | None:
    """Return the segment whose choice loses least; None if no choice may serve all of the sizes."""
    keys = set.intersection(*(_admissible(size, worst) for size in sizes))
    segments = (Segment(tuple(sizes), key) for key in keys)
    return min(segments, key=lambda segment: (segment.loss, segment.key), default=None)


def _admissible(size: Size, worst: float) -> set[Key]:
    keys: Iterable[Key] = size.losses if size.interior else fast_enough(size, worst)
    return {key_of(size.served_by)} | {key for key in keys if size.losses[key] <= worst}


def merged(segments: Iterable[Segment]) -> list[Segment]:
    """Merge neighbouring segments of one choice, and drop those without sizes."""
    kept = (segment for segment in segments if segment.sizes)
    return [
        Segment(tuple(size for segment in of_key for size in segment.sizes), key)
        for key, of_key in groupby(kept, key=lambda segment: segment.key)
    ]


def _end(one: Segment, other: Segment) -> int:
    """Return the greatest m of the first of two neighbouring segments."""
    left, right = one.sizes[-1], other.sizes[0]
    loss_at_right = right.losses.get(one.key)
    if loss_at_right is None:  # its choice is unknown beyond its own sizes
        return left.m
    # Where the other choice was not measured at `left`, its time at `right` bounds it: fewer rows are seldom more work.
    bound = next(c.score for c in right.ranking.contenders if key_of(c) == other.key) / left.served_by.score - 1
    loss_at_left = left.losses.get(other.key, max(0.0, bound))
    total = loss_at_right + loss_at_left
    crossing = loss_at_left / total if total > 0 else 0.0
    wanted = math.log2(left.m) + crossing * (math.log2(right.m) - math.log2(left.m))
    powers = (1 << e for e in range(left.m.bit_length() - 1, right.m.bit_length() + 1))
    ends = {left.m, *(p for p in powers if left.m <= p < right.m)}
    return min(sorted(ends), key=lambda end: abs(math.log2(end) - wanted))
