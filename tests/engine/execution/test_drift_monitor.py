from __future__ import annotations

from gemmtune.engine.execution.drift_monitor import DriftWatch


def test_a_worker_that_stays_off_its_reference_is_told_of_once():
    watch = DriftWatch()
    said = [watch.saw("gpu0", 1.2) for _ in range(17)]
    assert said[:15] == [""] * 15
    assert said[15] == "its reference kernel took 1.20 times its nominal time, 16 measurements in a row"
    assert said[16] == ""


def test_one_calm_measurement_begins_anew_and_workers_are_apart():
    watch = DriftWatch()
    for _ in range(5):
        assert not any(watch.saw("gpu0", 0.8) for _ in range(15))
        assert watch.saw("gpu1", 1.3) == ""
        assert watch.saw("gpu0", 1.1) == ""
