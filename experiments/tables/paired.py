"""Time a call relative to another in pairs, on equal operands outside every cache."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from math import ceil, exp, log
from statistics import median

import torch

from gemmtune.engine.statistics import location_interval

GPU = torch.cuda.is_available()
PAIRS_OF_LONG = 32
"""Number of pairs for calls that take longer than LONG_MS, which scatter little."""
LONG_MS = 0.1
WARM_UPS = 3


def beside(
    ours: Callable[[int], object], other: Callable[[int], object], *, sets: int, pairs: int, lead: int
) -> tuple[float, float, list[float]]:
    """Return the median ms of both calls, and the ratio of ours to the other's with its 95 % interval.

    Both rotate through all operand sets, half a rotation apart, so that a set has left the cache when its turn comes. A
    pair consists of the two calls of one rotation on one set. The order of the two changes from turn to turn. The cost
    of two events is subtracted. The GPU rests as long as it worked, so that its power limit does not set in.

    Args:
        ours: called with the number of an operand set, 0 to sets - 1.
        other: called in the same way.
        sets: number of operand sets; if there are few, each should be larger than the cache.
        pairs: least number of pairs, for calls of at most LONG_MS.
        lead: cycles for which the GPU waits before a call, so that all its launches are queued when it begins.
    """
    empty = median(timed(lambda: None, lead) for _ in range(2 * WARM_UPS + 1)) if GPU else 0.0
    warm = [rotation(ours, other, sets, lead, number) for number in range(ceil(WARM_UPS / sets))]
    if median(warm[-1][1]) > LONG_MS:
        pairs = min(pairs, PAIRS_OF_LONG)
    found = [rotation(ours, other, sets, lead, number) for number in range(ceil(pairs / sets))]
    both = [(a - empty, b - empty) for one, another in found for a, b in zip(one, another, strict=True)]
    ratio = location_interval([log(a / b) for a, b in both])
    return median(a for a, _ in both), median(b for _, b in both), [exp(end) for end in ratio]


def rotation(
    ours: Callable[[int], object], other: Callable[[int], object], sets: int, lead: int, number: int
) -> tuple[list[float], list[float]]:
    """Return the ms of both calls on each operand set."""
    found = [0.0] * sets, [0.0] * sets
    for turn in range(sets):
        calls = [(0, ours, turn), (1, other, (turn + sets // 2) % sets)]
        for side, call, its in calls if (number + turn) % 2 else calls[::-1]:
            found[side][its] = timed(partial(call, its), lead)
    time.sleep(sum(map(sum, found)) / 1e3)
    return found


def timed(call: Callable[[], object], lead: int) -> float:
    """Return the ms of one call, events included."""
    if not GPU:
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e3
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda._sleep(lead)
    begin.record()
    call()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end)
