"""Hold a final: time finalists in rounds of one block each, until the ranking is decided."""

from collections.abc import Callable, Sequence
from math import exp, expm1

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri

from gemmtune.engine.measure.deciding.blocks import Block, Timer, location_of_blocks, variance_between_blocks
from gemmtune.engine.measure.deciding.screening import LaunchLimits
from gemmtune.engine.measure.jobs import FinalistReading
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import location_interval

_BY_CHANCE = 0.999
"""Probability up to which clocks alone may explain that the reference differs between finalists; 0.99 is too low."""


def hold_final(
    timers: Sequence[Timer], limits: LaunchLimits, may_be_throttled: Callable[[], bool] = lambda: True
) -> tuple[FinalistReading, ...]:
    """Time the finalists against each other and return their results, best first.

    Each round times one block per finalist; every second round reverses the order. Samples of a finalist and of the
    leader are paired by round and position, and so by operands. Their comparison is the Hodges-Lehmann location and
    interval of the ratio's logarithm, widened if the blocks of either differ by more than their launches. The leader
    has the lowest location.

    A finalist leaves when its interval lies above 0, from `limits.least_rounds` on. The final ends when all remaining
    finalists are equivalent, or after `limits.most_rounds`. It also ends before the round that would exceed both
    `limits.final_launches` and `limits.final_seconds`.

    Drift correction: subtract the reference kernel's change, weighted by the share that clock changes explain, and only
    if `may_be_throttled` returned True after a round; see experiments/measurement.

    Raises:
        ValueError: there are no timers.
    """
    if not timers:
        raise ValueError("no finalists: a final needs at least one")
    finalists = [_Finalist(number, timer) for number, timer in enumerate(timers)]
    remaining, leader, launches, busy_ns, weight, throttled = finalists, finalists[0], 0, 0.0, 0.0, False
    for rounds in range(1, limits.most_rounds + 1):
        for finalist in remaining if rounds % 2 else reversed(remaining):
            busy_ns += finalist.time_block()
        launches += len(remaining) * finalists[0].blocks[0].launches
        throttled = throttled or may_be_throttled()
        if rounds < limits.least_rounds:
            continue
        weight = _reference_weight(finalists) if throttled else 0.0
        for finalist, between in zip(finalists, _variances_between_blocks(finalists, weight), strict=True):
            finalist.variance_between_blocks = between
        before = leader
        leader = min(remaining, key=lambda finalist: _log_ratio(finalist, before, weight)[0])
        intervals = [_log_ratio(finalist, leader, weight, limits.final_confidence)[1:] for finalist in remaining]
        remaining = [finalist for finalist, (low, _) in zip(remaining, intervals, strict=True) if low <= 0]
        decided = all(low > 0 or max(-low, high) <= limits.equivalence for low, high in intervals)
        round_launches = len(remaining) * finalists[0].blocks[0].launches
        most_launches = max(limits.final_launches, limits.final_seconds * 1e9 * launches / busy_ns)
        if decided or launches + round_launches > most_launches:
            break
    return _ranking(finalists, leader, weight)


class _Finalist:
    """Finalist with the blocks of its rounds."""

    def __init__(self, number: int, timer: Timer) -> None:
        self.number = number
        self.blocks: list[Block] = []
        self.reference_levels: list[float] = []
        self.reference_logs: list[NDArray[np.float64]] = []
        """Logarithms of the reference's times, per block."""
        self.variance_between_blocks = 0.0
        """Variance of the time's logarithm from block to block, beyond the noise of launches."""
        self._timer = timer
        self._logs: list[NDArray[np.float64]] = []

    def time_block(self) -> float:
        """Time one more block and return the GPU time it took, in nanoseconds."""
        block = self._timer.block(len(self.blocks))
        self.blocks.append(block)
        self.reference_logs.append(np.log(block.reference_ns))
        self.reference_levels.append(location_interval(self.reference_logs[-1])[0])
        self._logs.append(np.log(block.samples_ns))
        return block.busy_ns

    def logs(self, weight: float) -> NDArray[np.float64]:
        """Return the logarithms of the times less `weight` times the reference's, shape (rounds, samples)."""
        return np.array(self._logs) - weight * np.array(self.reference_logs)


def _reference_weight(finalists: Sequence[_Finalist]) -> float:
    """Return the weight, 0 to 1, at which the reference's logarithm is subtracted from a finalist's.

    A weight of 1 removes every drift, and doubles the noise if there is none. The reference's levels are split into an
    effect per round, an effect per finalist and a rest, which holds clocks and the noise of launches. The finalists
    differ by as much as the rest explains, or by more; the weight is the share of clocks in their difference.
    """
    if len(finalists) == 1:
        return 1.0
    noise = np.concatenate([finalist.reference_logs for finalist in finalists])
    levels = np.concatenate([finalist.reference_levels for finalist in finalists])
    noise -= levels[:, np.newaxis]
    noise -= np.median(noise, axis=0)  # an operand set costs the same in every block, which is no noise
    explained = (1.4826 * float(np.median(np.abs(noise)))) ** 2 / noise.shape[1]
    rounds, design = _additive_model(finalists)
    effects, residual, *_ = np.linalg.lstsq(design, levels)
    freedom = len(levels) - design.shape[1]
    if freedom < 1 or not residual.sum():
        return 0.0
    of_finalists = np.array([0.0, *effects[rounds.max() :]])
    of_finalists -= np.average(of_finalists, weights=rounds)
    moving = float(residual.sum()) / freedom
    between = float(rounds @ of_finalists**2) / (len(finalists) - 1)
    clocks: float = max(0.0, moving - explained)
    by_chance = moving * float(fdtri(len(finalists) - 1, freedom, _BY_CHANCE))
    return clocks / moving if between <= by_chance else clocks / between


def _additive_model(finalists: Sequence[_Finalist]) -> tuple[NDArray[np.int_], NDArray[np.float64]]:
    """Return the rounds per finalist, and a design matrix: a row per block, a column per round and later finalist."""
    counts = np.array([len(finalist.blocks) for finalist in finalists])
    rounds = np.concatenate([np.arange(count) for count in counts])
    of_round, of_finalist = np.eye(counts.max())[rounds], np.repeat(np.eye(len(finalists)), counts, axis=0)
    return counts, np.hstack([of_round, of_finalist[:, 1:]])


def _variances_between_blocks(finalists: Sequence[_Finalist], weight: float) -> list[float]:
    """Return each finalist's variance from block to block, beyond the rounds' own and the noise of launches.

    Blocks of some kernels differ by more than their launches, above all cuBLAS'; see experiments/measurement.
    """
    if len(finalists) == 1:
        return [0.0]
    logs = [finalist.logs(weight) for finalist in finalists]
    levels = [np.median(rows, axis=1) for rows in logs]
    rounds, design = _additive_model(finalists)
    basis, all_levels = np.linalg.qr(design)[0], np.concatenate(levels)
    residual = np.abs(all_levels - basis @ (basis.T @ all_levels))
    residual /= np.sqrt(np.maximum(1e-9, 1 - np.sum(basis**2, axis=1)))  # undo what the fit took from each level
    residuals = np.split(residual, np.cumsum(rounds)[:-1])
    return [variance_between_blocks(own, rows) for own, rows in zip(residuals, logs, strict=True)]


def _log_ratio(
    finalist: _Finalist, leader: _Finalist, weight: float, confidence: float = 0.95
) -> tuple[float, float, float]:
    """Return the logarithm of a finalist's time over the leader's with its interval, from their common rounds."""
    rounds = min(len(finalist.blocks), len(leader.blocks))
    ratios = finalist.logs(weight)[:rounds] - leader.logs(weight)[:rounds]
    between = 0.0 if finalist is leader else finalist.variance_between_blocks + leader.variance_between_blocks
    return location_of_blocks(ratios, between, confidence)


def _ranking(finalists: Sequence[_Finalist], leader: _Finalist, weight: float) -> tuple[FinalistReading, ...]:
    """Return the results of the finalists, the leader first, then by time over the leader's."""
    clocks = weight * float(np.median(np.concatenate([finalist.reference_levels for finalist in finalists])))
    leader_time = location_interval(leader.logs(weight).ravel())[0] + clocks

    def result(finalist: _Finalist) -> tuple[float, FinalistReading]:
        ratio, ratio_low, ratio_high = _log_ratio(finalist, leader, weight)
        own = location_of_blocks(finalist.logs(weight), finalist.variance_between_blocks)
        time_ns, low_ns, high_ns = (exp(leader_time + ratio + end - own[0]) for end in own)
        return ratio, FinalistReading(
            number=finalist.number,
            estimate=Estimate(time_ns, low_ns, high_ns),
            samples_ns=tuple(sample for block in finalist.blocks for sample in block.samples_ns),
            reference_ns=tuple(sample for block in finalist.blocks for sample in block.reference_ns),
            behind=(expm1(ratio_low), expm1(ratio_high)),
            run=finalist.blocks[0].run,
        )

    others = sorted((result(finalist) for finalist in finalists if finalist is not leader), key=lambda pair: pair[0])
    return (result(leader)[1], *(other for _, other in others))
