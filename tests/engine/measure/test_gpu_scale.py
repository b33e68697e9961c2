from __future__ import annotations

from gemmtune.engine.measure.gpu_scale import as_on
from gemmtune.engine.records.measurement import Estimate, ReferenceLevel

FAST, SLOW = ReferenceLevel("torch 2.11.0", "GPU-a", 100.0), ReferenceLevel("torch 2.11.0", "GPU-b", 125.0)


def test_a_time_is_longer_where_the_reference_takes_longer():
    assert as_on(SLOW, Estimate(80.0, 76.0, 84.0, FAST)) == Estimate(100.0, 95.0, 105.0, SLOW)
    assert as_on(FAST, Estimate(100.0, 95.0, 105.0, SLOW)) == Estimate(80.0, 76.0, 84.0, FAST)


def test_why_racing_stopped_stays_with_the_time():
    found = as_on(SLOW, Estimate(80.0, 76.0, 84.0, FAST, "one launch took 6.1 times the leader's"))
    assert found == Estimate(100.0, 95.0, 105.0, SLOW, "one launch took 6.1 times the leader's")


def test_a_time_stays_on_its_own_gpu_and_where_levels_do_not_compare():
    found = Estimate(0.1 + 0.2, 0.1, 0.7, FAST)
    assert as_on(FAST, found) is found
    assert as_on(ReferenceLevel("torch 2.11.0", "GPU-a", 100.8), found) is found, "its own GPU, in a later process"
    assert as_on(None, found) is found
    assert as_on(ReferenceLevel("torch 2.13.0", "GPU-b", 125.0), found) is found
    bare = Estimate(80.0, 76.0, 84.0)
    assert as_on(SLOW, bare) is bare
