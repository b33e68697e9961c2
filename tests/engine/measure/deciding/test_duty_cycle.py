from __future__ import annotations

import pytest

from gemmtune.engine.measure.deciding.blocks import Block
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.deciding.duty_cycle import DutyCycle, DutyCycleTimer


class Clock:
    """Clock that tests advance."""

    def __init__(self):
        self.seconds = 0.0
        self.rests = []

    def now(self):
        return self.seconds

    def rest(self, seconds):
        self.rests.append(seconds)
        self.seconds += seconds

    def busy(self, duty_cycle, seconds):
        self.seconds += seconds
        duty_cycle.add_busy(seconds)


def cycle(clock):
    return DutyCycle(clock.now, clock.rest)


def test_a_gpu_under_constant_load_is_brought_down_to_the_duty_cycle():
    clock = Clock()
    duty_cycle = cycle(clock)
    for _ in range(1000):
        clock.busy(duty_cycle, 0.002)
    assert 2.0 / clock.seconds == pytest.approx(0.15, rel=0.01)
    assert max(clock.rests) < 0.03


def test_a_gpu_that_waits_for_its_host_gets_no_rests():
    clock = Clock()
    duty_cycle = cycle(clock)
    for _ in range(1000):
        clock.seconds += 0.001
        clock.busy(duty_cycle, 0.0001)
    assert clock.rests == []


def test_a_burst_after_a_rest_gets_no_rest():
    clock = Clock()
    duty_cycle = cycle(clock)
    clock.seconds += 100.0
    for _ in range(8):
        clock.busy(duty_cycle, 0.0005)
    assert clock.rests == []


class Scripted:
    """Timer with one given level of the reference per block."""

    def __init__(self, *levels):
        self.levels = iter(levels)

    def block(self, number):
        level = next(self.levels)
        return Block((50.0 * level,) * 8, (100.0 * level,) * 8)

    def single(self):
        return Block((50.0,), (500.0,))


def timer_of(clock, *levels):
    return DutyCycleTimer(Scripted(*levels), Drift(100.0), cycle(clock), clock.rest)


def test_a_slow_block_is_measured_again_after_longer_and_longer_rests():
    clock = Clock()
    timer = timer_of(clock, 1.2, 1.1, 1.02, 1.15, 1.0)
    assert timer.block(0).reference_ns[0] == pytest.approx(102.0)
    assert timer.block(0).reference_ns[0] == pytest.approx(100.0)
    assert [round(block.reference_ns[0]) for block in timer.slow_blocks] == [120, 110, 115]
    assert clock.rests == [0.001, 0.005, 0.01]


def test_blocks_count_once_the_rests_are_used_up():
    clock = Clock()
    timer = timer_of(clock, *[1.2] * 9)
    assert [timer.block(0).reference_ns[0] for _ in range(3)] == pytest.approx([120.0] * 3)
    assert len(timer.slow_blocks) == len(clock.rests) == 6


def test_a_single_launch_counts_whatever_the_clocks():
    clock = Clock()
    assert timer_of(clock).single().reference_ns == (500.0,)
    assert clock.rests == []


def test_the_duty_cycle_counts_all_launches_of_a_run():
    class Runs(Scripted):
        def block(self, number):
            return Block((1e6,) * 8, (1e5,) * 8, run=5)  # 40.8 ms

    clock = Clock()
    timer = DutyCycleTimer(Runs(), Drift(1e5), cycle(clock), clock.rest)
    timer.block(0)
    assert clock.rests == [pytest.approx((0.0408 - 0.002) / 0.15)]
