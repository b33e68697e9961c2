from __future__ import annotations

import pytest

from gemmtune.engine.execution.drift_monitor import DriftMonitor


def test_a_worker_that_stays_off_its_reference_is_reported_once():
    monitor = DriftMonitor()
    reasons = [monitor.check("gpu0", 1.2) for _ in range(17)]
    assert reasons[:15] == [""] * 15
    assert reasons[15] == "its reference kernel took 1.20 times its nominal time, 16 measurements in a row"
    assert reasons[16] == ""


def test_one_measurement_without_drift_restarts_the_count_of_its_worker_alone():
    monitor = DriftMonitor()
    for _ in range(5):
        assert not any(monitor.check("gpu0", 0.8) for _ in range(15))
        assert monitor.check("gpu1", 1.3) == ""
        assert monitor.check("gpu0", 1.1) == ""


@pytest.mark.parametrize(("drift", "trusted"), [(1.149, True), (1.151, False), (0.851, True), (0.849, False)])
def test_a_reference_may_be_off_by_fifteen_percent(drift, trusted):
    monitor = DriftMonitor()
    assert all(monitor.check("gpu0", drift) == "" for _ in range(15))
    assert (monitor.check("gpu0", drift) == "") is trusted
