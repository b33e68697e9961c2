"""Bench refuses what it cannot time, before it imports torch."""

from __future__ import annotations

import pytest

import gemmtune as gt
from gemmtune.engine.api import benching
from gemmtune.engine.records.errors import DeviceError, UsageError


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"arms": ("eager", "jit")}, "arm 'jit' is not one of eager, compile, max-autotune, table"),
        ({"arms": ("eager", "table")}, "name its folder"),
        ({"arms": ("eager",), "table": "out"}, "add it to the arms"),
        ({"arms": ("eager",), "seconds": 0}, "seconds=0 is not above 0"),
    ],
)
def test_wrong_arguments_are_refused(options, part):
    with pytest.raises(UsageError, match=part):
        gt.bench("models:mlp", "bf16[2,2]", **options)


def test_an_open_size_is_refused():
    with pytest.raises(UsageError, match="size 'm' is open"):
        gt.bench("models:mlp", "bf16[m:1..8,2]", arms=("eager",))


def test_without_a_gpu_the_way_out_is_named(monkeypatch):
    monkeypatch.setattr(benching, "present_device", lambda: None)
    with pytest.raises(DeviceError, match="gemmtune capture --device"):
        gt.bench("models:mlp", "bf16[2,2]", arms=("eager",))
