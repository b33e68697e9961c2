"""A campaign's time is counted as it was asked for."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.scheduling.stopping import Limits


@pytest.mark.parametrize(
    ("limits", "gpus", "seconds"),
    [
        (Limits(seconds=60), 4, 60),
        (Limits(gpu_seconds=60), 4, 15),
        (Limits(seconds=10, gpu_seconds=60), 4, 10),
        (Limits(seconds=20, gpu_seconds=60), 4, 15),
    ],
)
def test_time_is_over_at_the_first_limit(limits, gpus, seconds):
    assert [limits.seconds_left(gpus, elapsed) for elapsed in (0, seconds - 1, seconds + 1)] == [seconds, 1, 0]


def test_without_a_limit_on_time_it_is_never_over():
    assert Limits(regret=0.01).seconds_left(1, 1e9) is None


@pytest.mark.parametrize("name", ["seconds", "gpu_seconds", "regret"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("nan")])
def test_a_limit_out_of_bounds_is_refused(name, value):
    with pytest.raises(UsageError, match=rf"{name}={value} is not a number above 0"):
        Limits(**{name: value})
