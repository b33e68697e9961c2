from __future__ import annotations

import numpy as np
import pytest

from gemmtune.engine.measure.deciding.clock_drift import Drift, WarmUp


def feed(warm_up, readings, start=100.0, step=0.1):
    """Feed readings, one every `step` seconds, until done; returns how many were taken."""
    for count, reading in enumerate(readings, start=1):
        warm_up.add(reading, start + count * step)
        if warm_up.done:
            return count
    return None


def test_clocks_are_steady_once_the_last_five_readings_agree():
    readings = [1370.0, 1400.0, 1450.0, 1500.0, 1520.0, 1521.0, 1519.0, 1522.0, 1520.0, 1520.0]
    assert feed(WarmUp(100.0), readings) == 9


def test_agreement_before_the_least_load_does_not_count():
    assert feed(WarmUp(100.0), [1500.0] * 100, step=1 / 64) == 26


def test_fewer_than_five_readings_show_nothing():
    assert feed(WarmUp(100.0), [1500.0] * 10, step=0.5) == 5


def test_waiting_for_clocks_that_are_never_steady_ends():
    assert feed(WarmUp(100.0), [1500.0, 1530.0] * 50) == 30


def test_before_any_reading_it_is_not_done():
    assert not WarmUp(100.0).done


def test_factor_is_the_reference_over_its_nominal_level():
    drift = Drift(200.0, tolerance=0.01)
    assert drift.factor([209.0, 210.0, 211.0, 210.0, 208.0, 212.0, 900.0]) == pytest.approx(1.05, abs=5e-3)
    assert drift.factor([190.0] * 8) == pytest.approx(0.95)


@pytest.mark.parametrize("level", [0.9901, 0.996, 1.0, 1.004, 1.0099])
def test_within_the_tolerance_nothing_is_corrected(level):
    assert Drift(200.0, tolerance=0.01).factor([200.0 * level] * 8) == 1.0


def test_the_correction_has_no_jump_at_the_tolerance():
    drift = Drift(200.0, tolerance=0.01)
    assert drift.factor([200.0 * 1.0101] * 8) == pytest.approx(1.0002, abs=1e-5)
    assert drift.factor([200.0 * 0.981] * 8) == pytest.approx(0.982, abs=1e-5)


def test_the_factor_of_few_launches_is_unmoved_by_a_late_one():
    assert Drift(200.0, tolerance=0.01).factor([900.0, 210.0]) == pytest.approx(1.05)


def test_a_reference_that_moves_while_the_gpu_reports_no_throttling_corrects_nothing():
    calls = []
    drift = Drift(62_500.0, reference_scatter=0.03, may_be_throttled=lambda: calls.append(True) or len(calls) > 1)
    assert drift.factor([77_000.0] * 8) == 1.0
    assert drift.factor([77_000.0] * 8) == pytest.approx(1.232)
    assert drift.factor([62_600.0] * 8) == 1.0
    assert len(calls) == 2  # NVML is read only if a correction is due


def test_slow_clocks_are_distinguished_from_the_effect_of_another_candidate():
    drift = Drift(200.0, slow_tolerance=0.05)
    assert drift.slowed([211.0] * 8)
    assert not drift.slowed([208.0] * 8)
    assert not drift.slowed([150.0] * 8)
    assert not drift.slowed([*[205.0] * 7, 900.0])  # one late launch is no clock


def test_a_change_within_the_references_scatter_is_not_a_change_of_the_clocks():
    drift = Drift(200.0, reference_scatter=0.04)
    assert drift.factor([214.0] * 8) == 1.0
    assert not drift.slowed([222.0] * 8)
    assert drift.factor([240.0] * 8) == pytest.approx(1.2)
    assert drift.slowed([226.0] * 8)


def blocks(rng, shift, noise=0.015):
    by_position = rng.uniform(0.99, 1.01, 8)
    return [tuple(20_000 * level * by_position * np.exp(noise * rng.standard_normal(8))) for level in (1.0, shift)]


def share_moved(shift, noise=0.015):
    rng = np.random.default_rng(0)
    return np.mean([Drift(1.0).moved(*blocks(rng, shift, noise)) for _ in range(500)])


def test_noise_alone_does_not_count_as_movement():
    assert share_moved(1.0) <= 0.02
    assert share_moved(1.01) <= 0.05


@pytest.mark.parametrize("shift", [1.05, 0.95])
def test_a_step_of_the_clocks_counts_as_movement(shift):
    assert share_moved(shift) >= 0.95


def test_quiet_readings_show_small_movements_beyond_the_tolerance():
    assert share_moved(1.015, noise=0.001) == 1.0
    assert share_moved(1.005, noise=0.001) == 0.0


def test_fewer_than_six_launches_show_no_movement():
    assert not Drift(1.0).moved([1.0] * 5, [2.0] * 5)


def test_blocks_of_different_lengths_are_refused():
    with pytest.raises(ValueError, match="blocks of 8 and 7 reference launches"):
        Drift(1.0).moved([1.0] * 8, [1.0] * 7)
