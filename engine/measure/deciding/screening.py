"""Launches go where the ranking is undecided: a screening against the leader, before the final. Knows no kernel.

A candidate is never timed alone: each block of its launches alternates with as many of a reference kernel, which tells
what the clocks did meanwhile. Figures below come from the simulated campaigns of
tests/engine/measure/deciding/test_screening.py where no other source is named.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gemmtune.engine.measure.deciding.blocks import Block, Timer, over_blocks
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.records.measurement import Estimate

__all__ = ["LaunchLimits", "Leader", "ScreeningResult", "implausible_reason", "screen"]

_LARGEST_LEAD = 0.10
"""Lead over the leader that is looked at twice."""


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader so far."""

    estimate: Estimate
    """Its time, corrected for drift, with the level of the GPU that measured it."""


@dataclass(frozen=True, slots=True)
class LaunchLimits:
    """How far to go before giving up on a candidate."""

    slowness_limits: tuple[float, ...] = (5.0, 1.5, 1.1)
    """Multiples of the leader's time; a candidate is out when the fastest of its first launches lies above: one launch
    against the first limit, two against the second, and so on. A single launch may take up to 5 times as long as it
    should (after idling; twice as long once in 200; H200, 2026-11-21), two in a row hardly ever do. No launch is fast
    by chance, so the fastest decides; three that scatter by 1.5 %, on one operand set, stay well within 10 %."""
    least_blocks: int = 2
    """Blocks of a candidate that stays level with the leader, however long they take."""
    most_blocks: int = 4
    """Its blocks while they take no more than `block_seconds`: 35 launches with the singles, whose location repeats to
    0.2 to 0.5 % (H200, 2026-11-21). That carries near-ties into the final, which decides among them."""
    block_seconds: float = 0.004
    """GPU time, the reference kernel's included. Launches of 100 µs and more scatter by less, so that two blocks say as
    much, and each millisecond is followed by six of rest: of a campaign of a hundred problems 24 had kernels of 100 to
    1000 µs, and took two thirds of the time in blocks (H200, 2026-11-22)."""
    alone_blocks: int = 8
    """Blocks of a candidate that is compared with none, while they take no more than `alone_seconds`; `most_blocks` in
    any case. Where its operands lie moves a kernel of 10 µs by 2 to 3 % (one standard deviation), each its own way. And
    one block in a hundred is 1 to 4 % slower than the next, beside a reference that is not: as one of four it moves a
    kernel of 90 µs by 0.9 %, where six kernels lie within 0.4 % (2048x4096x4096, H200, 2026-11-22)."""
    alone_seconds: float = 0.012
    margin: float = 0.015
    """Gap between a candidate's interval and the leader's that ends it: what is left of drift after the correction."""
    most_repeats: int = 2
    """Blocks measured again because the clocks moved, for one candidate. Clocks that keep moving are not waited for."""
    final_confidence: float = 0.99
    """Confidence at which a finalist is out. Not 95 %: it is tested after each of up to 16 rounds, and to be unlucky
    once is to be lost."""
    equivalence: float = 0.001
    """Difference of time that no longer matters; a final between finalists proven this close has nothing to decide.
    Kernels that scatter by 1.5 % are never proven that close, long ones that scatter by 0.2 % soon are."""
    least_rounds: int = 2
    """Rounds that are played in any case, before a finalist can be out. One late launch among 8 pairs takes the end of
    their interval with it, and of a finalist that is out no more is learned: with 1 instead of 2 the mean regret bound
    grows from 0.4 to 1.2 % where 1 % of the launches are late."""
    most_rounds: int = 16
    """Rounds of a final: 128 pairs of launches, whose location is good to 0.2 % where one launch scatters by 1.5 %."""
    final_launches: int = 768
    """Launches of a final, the reference kernel's included: 6 rounds of 8 finalists, or 16 of 3."""
    final_seconds: float = 0.03
    """GPU time that a final may take beyond these launches. Kernels of 10 to 20 µs have it, and need it: a launch of
    theirs scatters by 3 %. One of 17 µs that led after 6 rounds was 1.6 % behind (1x6144x4096, H200, 2026-11-22)."""


@dataclass(frozen=True, slots=True)
class ScreeningResult:
    """A candidate after its screening."""

    samples_ns: tuple[float, ...]
    """Time of each launch in launch order, uncorrected; nothing is dropped."""
    reference_ns: tuple[float, ...]
    """Time of the reference kernel's launch beside each."""
    estimate: Estimate
    """Location of the samples with its 95 % interval, corrected for drift."""
    drift: float
    """What the correction divided by."""
    stopped: str
    """Why it was given up early, for people; empty when it was not."""


def screen(timer: Timer, drift: Drift, leader: Leader | None, limits: LaunchLimits) -> ScreeningResult:
    """Measure one candidate as closely as its rank deserves.

    Single launches end what is far behind. Then blocks are added until the candidate's interval lies below the
    leader's, or above it by more than `limits.margin`, or there are `limits.most_blocks`, of long kernels fewer. A
    candidate without a leader gets them all, and a short one up to `limits.alone_blocks`. The estimate is that of the
    blocks, where there are any: a single launch comes behind a pause of the GPU and takes up to 7 % longer.

    A block beside which the reference moved against the block before is measured again, at most `limits.most_repeats`
    times: it decides nothing and does not count towards the cap. Its samples stay in with the others, since their own
    reference launches setup beside them and carry the same clocks into the drift.
    """
    samples: list[float] = []
    reference: list[float] = []
    singles = blocks = repeats = launches = 0

    def take(block: Block) -> None:
        samples.extend(block.samples_ns)
        reference.extend(block.reference_ns)

    def more() -> bool:
        busy_seconds = (sum(samples[singles:]) + sum(reference[singles:])) / 1e9
        if leader is None:
            return blocks < limits.most_blocks or (blocks < limits.alone_blocks and busy_seconds < limits.alone_seconds)
        return blocks < limits.least_blocks or (blocks < limits.most_blocks and busy_seconds < limits.block_seconds)

    def screened(stopped: str) -> ScreeningResult:
        first = singles if len(samples) > singles else 0
        factor, raw = drift.factor(reference[first:]), over_blocks(samples[first:], launches)
        corrected = Estimate(raw.time_ns / factor, raw.low_ns / factor, raw.high_ns / factor)
        return ScreeningResult(tuple(samples), tuple(reference), corrected, factor, stopped)

    if leader is not None:
        for count, limit in enumerate(limits.slowness_limits, start=1):
            take(timer.single())
            clocks = max(1.0, min(reference) / drift.nominal_ns)  # none are faster than those that nothing holds back
            multiple = min(samples) / clocks / leader.estimate.time_ns
            if multiple > limit:
                fastest = "one launch" if count == 1 else f"the fastest of {count} launches"
                return screened(f"{fastest} took {multiple:.3g} times the leader's")

    singles = len(samples)
    previous: Block | None = None
    while more():
        block = timer.block(blocks)
        launches = len(block.samples_ns)
        take(block)
        disturbed = previous is not None and drift.moved(previous.reference_ns, block.reference_ns)
        previous = block
        if disturbed and repeats < limits.most_repeats:
            repeats += 1
            continue
        blocks += 1
        if leader is None:
            continue
        so_far = screened("")
        if so_far.estimate.low_ns > leader.estimate.high_ns * (1 + limits.margin):
            gap = so_far.estimate.low_ns / leader.estimate.high_ns - 1
            return replace(
                so_far, stopped=f"after {len(samples)} launches its interval lies {gap:.2%} above the leader's"
            )
        if so_far.estimate.high_ns < leader.estimate.low_ns:
            break
    return screened("")


def implausible_reason(result: Estimate, leader: Leader | None, floor_ns: float) -> str:
    """Why a result is too good to be believed without a second look; empty when it is not.

    Args:
        result: what was measured.
        leader: the leader before it.
        floor_ns: the time below which the device cannot do the work: its bytes over the bandwidth, its operations over
            the peak rate.
    """
    if result.time_ns < floor_ns:
        return f"{result.time_ns / 1e3:.2f} µs is below the device's floor of {floor_ns / 1e3:.2f} µs"
    if leader is not None and (lead := 1 - result.time_ns / leader.estimate.time_ns) > _LARGEST_LEAD:
        return f"{lead:.0%} faster than the leader, more than {_LARGEST_LEAD:.0%}"
    return ""
