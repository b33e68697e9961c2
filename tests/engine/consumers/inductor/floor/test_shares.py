"""Shares of a model's least time, computed by hand from a data sheet's rates."""

from __future__ import annotations

import pytest

from gemmtune.engine.consumers.inductor.floor.shares import Cost, Kind, Work, floor_of
from gemmtune.engine.records import catalogue

H200 = catalogue.device("H200")
PEAK, BANDWIDTH = 989.5, 4800
"""TFLOP/s of bf16 and GB/s, by the data sheet."""


def test_a_launch_takes_the_longer_of_its_flops_and_its_bytes():
    computing = Work("big", Kind.PRODUCT, {Cost(PEAK * 1e6, 1.0, "bf16"): 3.0})  # 1 µs each
    moving = Work("small", Kind.PRODUCT, {Cost(1.0, BANDWIDTH * 1e3, "bf16"): 2.0}, "strided")
    both = Work("attention", Kind.ATTENTION, {Cost(PEAK * 2e6, 1.0, "bf16"): 1.0, Cost(0.0, BANDWIDTH * 1e3): 1.0}, "x")
    rest = Work("everything else", Kind.REST, {Cost(0.0, BANDWIDTH * 2e3): 1.0}, "Inductor's")
    floor = floor_of([moving, computing, both, rest], H200)
    assert floor.total_ns == pytest.approx(10_000)
    assert [(part.name, part.runs, part.floor_ns, part.share) for part in floor.parts] == [
        ("attention", 2, pytest.approx(3000), pytest.approx(0.3)),
        ("big", 3, pytest.approx(3000), pytest.approx(0.3)),
        ("everything else", 1, pytest.approx(2000), pytest.approx(0.2)),
        ("small", 2, pytest.approx(2000), pytest.approx(0.2)),
    ]
    assert floor.servable == pytest.approx(0.3)
    assert list(floor.by_kind.values()) == pytest.approx([0.5, 0.3, 0.0, 0.2])
    assert floor.unknown == []


def test_what_nobody_knows_is_named_and_counts_by_its_bytes():
    unknown = Work("mine.op", Kind.LIBRARY, {Cost(None, BANDWIDTH * 1e3): 1.0}, "a library's kernel")
    odd = Work("odd", Kind.PRODUCT, {Cost(1e15, BANDWIDTH * 3e3, "fp4"): 1.0})
    floor = floor_of([unknown, odd], H200)
    assert [(part.name, part.flops, part.share) for part in floor.parts] == [
        ("odd", 1e15, pytest.approx(0.75)),
        ("mine.op", None, pytest.approx(0.25)),
    ]
    assert floor.unknown == ["the peak rate of NVIDIA H200 in fp4", "the flops of mine.op"]


def test_nothing_has_no_share():
    assert floor_of([], H200).servable == 0
