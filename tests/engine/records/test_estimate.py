from __future__ import annotations

from gemmtune.engine.records.measurement import Estimate, ReferenceLevel

FAST, SLOW = ReferenceLevel("torch 2.11.0", "GPU-a", 100.0), ReferenceLevel("torch 2.11.0", "GPU-b", 125.0)


def test_a_time_grows_with_the_reference_time_of_the_gpu():
    assert Estimate(80.0, 76.0, 84.0, FAST).at_level(SLOW) == Estimate(100.0, 95.0, 105.0, SLOW)
    assert Estimate(100.0, 95.0, 105.0, SLOW).at_level(FAST) == Estimate(80.0, 76.0, 84.0, FAST)


def test_the_reason_for_stopping_early_stays_with_the_time():
    stopped = Estimate(80.0, 76.0, 84.0, FAST, "one launch took 6.1 times the leader's").at_level(SLOW)
    assert stopped == Estimate(100.0, 95.0, 105.0, SLOW, "one launch took 6.1 times the leader's")


def test_a_time_stays_on_its_own_gpu_and_where_levels_do_not_compare():
    found = Estimate(0.1 + 0.2, 0.1, 0.7, FAST)
    assert found.at_level(FAST) is found
    assert found.at_level(ReferenceLevel("torch 2.11.0", "GPU-a", 100.8)) is found, "its own GPU, in a later process"
    assert found.at_level(None) is found
    assert found.at_level(ReferenceLevel("torch 2.13.0", "GPU-b", 125.0)) is found
    without_level = Estimate(80.0, 76.0, 84.0)
    assert without_level.at_level(SLOW) is without_level
