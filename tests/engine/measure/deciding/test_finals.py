from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmtune.engine.measure.deciding.finals import hold_final
from gemmtune.engine.measure.deciding.screening import LaunchLimits

from .simulated_clock import BLOCK_SAMPLES, PARTS, SimulatedClock, SimulatedKernel, SimulatedTimer, steady

pytestmark = pytest.mark.slow(5)

LIMITS = LaunchLimits()


def finalists(times, seed=0, noise=0.015, level=steady):
    rng = np.random.default_rng([seed, 1])
    clock = SimulatedClock([seed, 2], level, noise)
    reference = SimulatedKernel.draw(45_000.0, rng)
    return clock, [SimulatedTimer(clock, SimulatedKernel.draw(true_ns, rng), reference) for true_ns in times]


def rounds(result):
    return len(result.samples_ns) // BLOCK_SAMPLES


def test_a_final_returns_the_best_first_with_the_intervals_of_the_rest():
    _, timers = finalists([46_000.0, 45_000.0, 48_000.0, 45_500.0])
    ranking = hold_final(timers, LIMITS)
    assert [result.number for result in ranking] == [1, 3, 0, 2]
    assert ranking[0].behind == (0.0, 0.0)
    for result, time_ns in zip(ranking, [45_000.0, 45_500.0, 46_000.0, 48_000.0], strict=True):
        assert result.behind[0] <= time_ns / 45_000.0 - 1 <= result.behind[1]
        assert result.estimate.time_ns == pytest.approx(time_ns, rel=0.02)
        assert result.estimate.low_ns < result.estimate.time_ns < result.estimate.high_ns
        assert len(result.samples_ns) == len(result.reference_ns) == BLOCK_SAMPLES * rounds(result)


def test_finalists_clearly_behind_leave_and_the_final_ends_when_one_is_left():
    clock, timers = finalists([45_000.0, 50_000.0, 55_000.0])
    assert [rounds(result) for result in hold_final(timers, LIMITS)] == [2] * 3
    assert clock.launches == 2 * 3 * 2 * BLOCK_SAMPLES


def test_a_final_ends_when_all_remaining_finalists_are_equivalent():
    clock = SimulatedClock(0, noise=0.0005)
    kernel = SimulatedKernel(450_000.0, np.ones(PARTS * BLOCK_SAMPLES))
    ranking = hold_final([SimulatedTimer(clock, kernel, kernel) for _ in range(2)], LIMITS)
    assert rounds(ranking[0]) < 16
    assert max(map(abs, ranking[1].behind)) <= 0.001


@pytest.mark.parametrize(
    ("times", "spent", "launches"),
    [
        ([45_000.0, 45_010.0, 45_020.0], [16, 16, 16], 768),
        ([9_000.0 + i for i in range(8)], [9] * 7 + [5], 1088),
    ],
)
def test_a_final_spends_the_rounds_that_its_limits_give_it(times, spent, launches):
    clock, timers = finalists(times)
    assert sorted(map(rounds, hold_final(timers, LIMITS)), reverse=True) == spent
    assert clock.launches == launches


def test_final_ends_after_the_most_rounds():
    _, timers = finalists([45_000.0, 45_010.0])
    assert [rounds(result) for result in hold_final(timers, replace(LIMITS, most_rounds=5))] == [5, 5]


def test_a_final_stays_within_its_launches():
    clock, timers = finalists([45_000.0 + i for i in range(8)])
    hold_final(timers, replace(LIMITS, final_launches=600, final_seconds=0.0))
    assert 600 - 8 * 2 * BLOCK_SAMPLES < clock.launches <= 600


def test_a_final_of_short_kernels_may_use_all_of_its_seconds():
    clock, timers = finalists([15_000.0 + i for i in range(8)])
    hold_final(timers, replace(LIMITS, final_launches=600, final_seconds=0.04))
    most = 0.04 / 30e-6  # a finalist takes 15 µs and the reference 45, so a launch 30
    assert most - 8 * 2 * BLOCK_SAMPLES < clock.launches <= 1.05 * most


def test_runs_count_with_all_their_launches_and_their_time():
    class InRuns:
        def __init__(self, timer):
            self._timer, self.blocks = timer, 0

        def block(self, number):
            self.blocks += 1
            return replace(self._timer.block(number), run=4)

    def rounds(**limits):
        timers = [InRuns(timer) for timer in finalists([15_000.0, 15_001.0])[1]]
        hold_final(timers, replace(LIMITS, **limits))
        return timers[0].blocks

    a_round = 2 * BLOCK_SAMPLES * (4 + 1)
    assert rounds(final_launches=7 * a_round, final_seconds=0.0) == 7
    assert rounds(final_launches=0, final_seconds=7.5 * 2 * BLOCK_SAMPLES * (4 * 15e-6 + 45e-6)) == 7


def test_final_alternates_the_order_of_its_rounds():
    order = []

    class Noting:
        def __init__(self, name, timer):
            self.name, self.timer = name, timer

        def block(self, number):
            order.append(self.name)
            return self.timer.block(number)

    _, timers = finalists([45_000.0, 45_010.0, 45_020.0])
    hold_final([Noting(name, timer) for name, timer in zip("abc", timers, strict=True)], replace(LIMITS, most_rounds=3))
    assert "".join(order[:9]) == "abccbaabc"


def test_a_single_finalist_is_the_leader():
    _, timers = finalists([45_000.0])
    (result,) = hold_final(timers, LIMITS)
    assert result.estimate.time_ns == pytest.approx(45_000, rel=0.01)
    assert result.behind == (0.0, 0.0)


def short_finals(seeds, sd):
    """Yield regrets and bounds of finals between 8 kernels of 9 µs within 3 %, with a reference that differs."""
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        times = 9_000 * (1 + rng.uniform(0, 0.03, 8))
        clock, reference = SimulatedClock([seed, 2], noise=0.02), SimulatedKernel.draw(9_500.0, rng)
        kernels = [SimulatedKernel.draw(true_ns, rng) for true_ns in times]
        factors = np.exp(sd * rng.standard_normal(8))
        timers = [SimulatedTimer(clock, k, reference, b) for k, b in zip(kernels, factors, strict=True)]
        ranking = hold_final(timers, LIMITS)
        yield times[ranking[0].number] / times.min() - 1, max(0.0, *(-s.behind[0] for s in ranking))


@pytest.mark.parametrize("sd", [0.0, 0.05])
def test_a_reference_that_differs_between_finalists_leaves_the_ranking_right(sd):
    regrets, bounds = map(np.array, zip(*short_finals(20, sd), strict=True))
    assert regrets.mean() < 0.001
    assert np.mean(regrets <= bounds) >= 0.95


class OtherReference:
    """Timer whose reference differs from block to block."""

    def __init__(self, timer, rng):
        self._timer, self._rng = timer, rng

    def block(self, number):
        block = self._timer.block(number)
        factor = np.exp(0.05 * self._rng.standard_normal())
        return replace(block, reference_ns=tuple(factor * ns for ns in block.reference_ns))


def test_a_final_without_throttling_ignores_the_reference():
    def ranking_of(may_be_throttled, restless):
        _, timers = finalists([9_000.0, 9_050.0, 9_100.0], noise=0.02)
        rng = np.random.default_rng(7)
        kernels = [OtherReference(timer, rng) for timer in timers] if restless else timers
        ranking = hold_final(kernels, replace(LIMITS, most_rounds=6), may_be_throttled)
        return [(s.number, s.estimate, s.behind) for s in ranking]

    assert ranking_of(lambda: False, restless=True) == ranking_of(lambda: False, restless=False)
    assert ranking_of(lambda: True, restless=True) != ranking_of(lambda: True, restless=False)
    once = iter([False, True])
    assert ranking_of(lambda: next(once, False), restless=True) == ranking_of(lambda: True, restless=True)


def finals_with_scattered_blocks(seeds):
    """Yield true ratio and interval between one kernel whose blocks differ by 5 % and each of 7 steady ones."""
    for seed in range(seeds):
        rng = np.random.default_rng([seed, 1])
        times = 12_000 * (1 + rng.uniform(0, 0.05, 8))
        times[0] = 1.02 * times[1:].min()
        clock, reference = SimulatedClock([seed, 2], noise=0.03), SimulatedKernel.draw(12_500.0, rng)
        kernels = [SimulatedKernel.draw(true_ns, rng) for true_ns in times]
        timers = [SimulatedTimer(clock, k, reference, block_scatter=0.05 * (k is kernels[0])) for k in kernels]
        first, *others = hold_final(timers, LIMITS)
        yield from (
            (times[other.number] / times[first.number] - 1, *other.behind)
            for other in others
            if 0 in (first.number, other.number)
        )


def test_scattered_blocks_do_not_reverse_a_ranking():
    true, low, high = np.array(list(finals_with_scattered_blocks(40))).T
    assert np.mean((low > 0) & (true < 0)) <= 0.08  # 27 % where all launches count as independent
    assert np.mean((low <= true) & (true <= high)) >= 0.7  # 36 %


def test_a_final_without_finalists_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        hold_final([], LIMITS)
