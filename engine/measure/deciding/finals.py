"""The final: finalists meet, a block of each a round, until the ranking is decided. Knows no kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, expm1

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from gemmtune.engine.measure.deciding.blocks import Block, Timer, beyond_noise, of_blocks
from gemmtune.engine.measure.deciding.screening import LaunchLimits
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import location_interval

__all__ = ["FinalistResult", "hold_final"]

_BY_CHANCE = 0.999
"""Probability up to which clocks alone may explain that the reference differs from finalist to finalist; clocks that
step every 100 launches follow the rounds for a while, so that at 0.99 they are taken for something else too often."""


@dataclass(frozen=True, slots=True)
class FinalistResult:
    """A finalist after the final."""

    index: int
    """Its position among the timers."""
    estimate: Estimate
    """The leader's: location of its samples with its 95 % interval, at the clocks of the final. Another's: the leader's
    time by the paired ratio, which is free of drift, with the interval of its own samples about it."""
    samples_ns: tuple[float, ...]
    """Time of each launch in launch order, or the mean of each run, uncorrected."""
    reference_ns: tuple[float, ...]
    """Time of the reference kernel's launch beside each."""
    behind: tuple[float, float]
    """95 % interval of its time over the leader's, minus 1, from paired samples; (0, 0) for the leader itself."""
    rounds: int
    """Rounds it took part in."""


def hold_final(
    timers: Sequence[Timer], limits: LaunchLimits, may_be_throttled: Callable[[], bool] = lambda: True
) -> tuple[FinalistResult, ...]:
    """The final: one block of each finalist a round, in reversed order every second round; best first.

    Drift correction: subtract the reference kernel's change, weighted by the share that clock changes explain, and only
    if `may_be_throttled` returned True after a round; see experiments/measurement.

    A finalist is compared with the leader by the ratio of samples at the same position of the same round, so of the
    same operands: Hodges–Lehmann location and interval of its logarithm, wider where blocks of one of the two differ by
    more than their launches. The leader is whoever has the lowest. A finalist is out when its interval lies above 0,
    from `limits.least_rounds` on. The final ends when one is left, when all that are left are equivalent, after
    `limits.most_rounds` rounds, or before the round that would exceed both `limits.final_launches` and
    `limits.final_seconds`.

    Raises:
        ValueError: there are no timers.
    """
    if not timers:
        raise ValueError("no finalists: a final needs at least one")
    finalists = [_Finalist(index, timer) for index, timer in enumerate(timers)]
    remaining, leader, launches, busy_ns, weight, held_back = finalists, finalists[0], 0, 0.0, 0.0, False
    for played in range(1, limits.most_rounds + 1):
        for finalist in remaining if played % 2 else reversed(remaining):
            busy_ns += finalist.run()
        launches += len(remaining) * finalists[0].blocks[0].launches
        held_back = held_back or may_be_throttled()
        if played < limits.least_rounds:
            continue
        weight = _reference_weight(finalists) if held_back else 0.0
        for finalist, apart in zip(finalists, _blocks_apart(finalists, weight), strict=True):
            finalist.apart = apart
        leader = _leader(remaining, leader, weight)
        intervals = [_over(finalist, leader, weight, limits.final_confidence)[1:] for finalist in remaining]
        remaining = [finalist for finalist, (low, _) in zip(remaining, intervals, strict=True) if low <= 0]
        decided = all(low > 0 or max(-low, high) <= limits.equivalence for low, high in intervals)
        round_launches = len(remaining) * finalists[0].blocks[0].launches
        most_launches = max(limits.final_launches, limits.final_seconds * 1e9 * launches / busy_ns)
        if decided or launches + round_launches > most_launches:
            break
    return _ranking(finalists, leader, weight)


class _Finalist:
    """One finalist with its rounds."""

    def __init__(self, index: int, timer: Timer) -> None:
        self.index = index
        self.blocks: list[Block] = []
        self.reference_levels: list[float] = []
        self.apart = 0.0
        """Variance of the logarithm of its time from block to block, beyond what the noise of launches explains."""
        self._timer = timer

    def run(self) -> float:
        """Measure one more block; the time that its launches took, in nanoseconds."""
        block = self._timer.block(len(self.blocks))
        self.blocks.append(block)
        self.reference_levels.append(location_interval(np.log(block.reference_ns))[0])
        return block.busy_ns

    def reference_logs(self) -> NDArray[np.float64]:
        """Logarithms of the reference's times, one row a round."""
        return np.log([block.reference_ns for block in self.blocks])

    def logs(self, weight: float) -> NDArray[np.float64]:
        """Logarithms of the times less `weight` times those of the reference beside them, one row a round."""
        return np.log([block.samples_ns for block in self.blocks]) - weight * self.reference_logs()


def _reference_weight(finalists: Sequence[_Finalist]) -> float:
    """How much of the reference's logarithm to take off a finalist's, 0 to 1.

    All of it removes every drift, and doubles the noise where there is none. And the reference's level may differ from
    finalist to finalist on the same clocks, which has nothing to do with their times: by 3 % (one standard deviation)
    for references of 6 to 12 µs (H200, 2026-11-22). So the levels are taken apart, into one a round, one a finalist and
    a rest. The rest is clocks and the noise of launches, and finalists differ as much as it explains, or more. Then the
    weight is the share of clocks in what they differ by.

    Mean regret of simulated finals of 8 kernels of 9 µs within 3 %: 0.03 % on steady clocks, whether the reference's
    level differs by 0, 2 or 5 %; with all variance within rounds taken for clocks it was 0.04, 0.56 and 0.97 %.
    """
    if len(finalists) == 1:
        return 1.0
    noise = np.concatenate([finalist.reference_logs() for finalist in finalists])
    levels = np.concatenate([finalist.reference_levels for finalist in finalists])
    noise -= levels[:, np.newaxis]
    noise -= np.median(noise, axis=0)  # what an operand set costs is the same in every block, and is no noise
    explained = (1.4826 * float(np.median(np.abs(noise)))) ** 2 / noise.shape[1]
    played, additive = _additive(finalists)
    found, rest, *_ = np.linalg.lstsq(additive, levels)
    freedom = len(levels) - additive.shape[1]
    if freedom < 1 or not rest.sum():
        return 0.0
    beside = np.array([0.0, *found[played.max() :]])
    beside -= np.average(beside, weights=played)
    moving, apart = float(rest.sum()) / freedom, float(played @ beside**2) / (len(finalists) - 1)
    clocks: float = max(0.0, moving - explained)
    by_chance = moving * float(fdtri(len(finalists) - 1, freedom, _BY_CHANCE))
    return clocks / moving if apart <= by_chance else clocks / apart


def _additive(finalists: Sequence[_Finalist]) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
    """Rounds of each finalist, and what takes a level of each block apart: its round, its finalist over the first."""
    played = np.array([len(finalist.blocks) for finalist in finalists])
    rounds = np.concatenate([np.arange(count) for count in played])
    of_round, of_lane = np.eye(played.max())[rounds], np.repeat(np.eye(len(finalists)), played, axis=0)
    return played, np.hstack([of_round, of_lane[:, 1:]])


def _blocks_apart(finalists: Sequence[_Finalist], weight: float) -> list[float]:
    """Each finalist's variance from block to block, beyond the rounds' own and what the noise of launches explains.

    Launches of Triton's kernels scatter as much within a block as from one to the next. Those of cuBLAS do not: beside
    kernels its blocks of 4096x4096 at m up to 64 differ by 2 to 5 % (one standard deviation; over 300 finals of four
    campaigns by 2.3 %, kernels by 0.6 %: H200, 2026-11-22), so that 24 launches of three blocks say less than they
    seem to. Part of that was executables that were not uploaded; since they are, it is 1.2 to 2.4 % below 45 µs.
    """
    if len(finalists) == 1:
        return [0.0]
    logs = [finalist.logs(weight) for finalist in finalists]
    levels = [np.median(rows, axis=1) for rows in logs]
    played, additive = _additive(finalists)
    basis, all_levels = np.linalg.qr(additive)[0], np.concatenate(levels)
    rest = np.abs(all_levels - basis @ (basis.T @ all_levels))
    rest /= np.sqrt(np.maximum(1e-9, 1 - np.sum(basis**2, axis=1)))  # what the fit took away from each
    rests = np.split(rest, np.cumsum(played)[:-1])
    return [beyond_noise(own, rows) for own, rows in zip(rests, logs, strict=True)]


def _leader(remaining: Sequence[_Finalist], previous: _Finalist, weight: float) -> _Finalist:
    """Whoever has the lowest location over the leader of the round before."""
    return min(remaining, key=lambda finalist: _over(finalist, previous, weight)[0])


def _over(
    finalist: _Finalist, leader: _Finalist, weight: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Logarithm of a finalist's time over the leader's, from the rounds that both took part in, with its interval."""
    rounds = min(len(finalist.blocks), len(leader.blocks))
    ratios = finalist.logs(weight)[:rounds] - leader.logs(weight)[:rounds]
    apart = 0.0 if finalist is leader else finalist.apart + leader.apart
    return of_blocks(ratios, apart, confidence)


def _ranking(finalists: Sequence[_Finalist], leader: _Finalist, weight: float) -> tuple[FinalistResult, ...]:
    """The finalists with their numbers, the leader first, then by time over the leader's."""
    clocks = weight * float(np.median(np.concatenate([finalist.reference_levels for finalist in finalists])))
    leader_time = location_interval(leader.logs(weight).ravel())[0] + clocks

    def standing(finalist: _Finalist) -> tuple[float, FinalistResult]:
        over, over_low, over_high = _over(finalist, leader, weight)
        own = of_blocks(finalist.logs(weight), finalist.apart)
        time_ns, low_ns, high_ns = (exp(leader_time + over + end - own[0]) for end in own)
        return over, FinalistResult(
            index=finalist.index,
            estimate=Estimate(time_ns, low_ns, high_ns),
            samples_ns=tuple(sample for block in finalist.blocks for sample in block.samples_ns),
            reference_ns=tuple(sample for block in finalist.blocks for sample in block.reference_ns),
            behind=(expm1(over_low), expm1(over_high)),
            rounds=len(finalist.blocks),
        )

    others = sorted((standing(finalist) for finalist in finalists if finalist is not leader), key=lambda pair: pair[0])
    return (standing(leader)[1], *(other for _, other in others))
