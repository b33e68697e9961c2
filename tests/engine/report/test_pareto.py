"""Tests of Pareto fronts."""

from __future__ import annotations

from itertools import permutations

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.pareto import front_json, front_sections, pareto_front

TASK = Task(Problem.parse("16x4096x4096:bf16:nt"), catalogue.device("H200"), "example")
PARTS = ("latency ns", "energy J")


def shown(task, parts, points):
    return Report({}, front_sections(task, parts, points)).to_text()


def scored(*scores):
    """Return one config per pair of scores, with its index as param x."""
    return [(Config({"x": index}), pair) for index, pair in enumerate(scores)]


@pytest.mark.parametrize(
    ("scores", "members"),
    [
        ([], []),
        ([(2.0, 2.0)], [0]),
        ([(1.0, 3.0), (3.0, 1.0), (2.0, 2.0)], [0, 2, 1]),  # by the first score
        ([(1.0, 3.0), (3.0, 1.0), (2.0, 3.5), (4.0, 4.0)], [0, 1]),
        ([(1.0, 1.0), (1.0, 2.0), (2.0, 1.0)], [0]),  # a tie in one score is lost by the other
        ([(2.0, 1.0), (1.0, 2.0), (1.0, 2.0)], [1, 2, 0]),  # equals stay together
        ([(2.0, 2.0), (2.0, 2.0), (1.0, 1.0)], [2]),  # and fall together
        ([(1.0, 2.0, 3.0), (1.0, 3.0, 2.0), (1.0, 3.0, 3.0)], [0, 1]),
    ],
)
def test_front_has_the_configs_that_no_other_dominates(scores, members):
    found = pareto_front(scored(*scores))
    assert [config.integer("x") for config, _ in found] == members
    assert [pair for _, pair in found] == [scores[index] for index in members]


def test_front_does_not_depend_on_the_order():
    points = scored((1.0, 3.0), (2.0, 2.0), (2.0, 2.0), (3.0, 3.0))
    assert {tuple(pareto_front(order)) for order in permutations(points)} == {tuple(points[:3])}


def test_result_reported_twice_is_one_member():
    (point,) = scored((1.0, 2.0))
    assert pareto_front([point, point]) == [point]


def test_front_has_readable_units_as_text_and_the_parts_units_as_json():
    points = scored((90_400.0, 0.054), (120_000.0, 0.0315), (130_000.0, 0.06))
    assert shown(TASK, PARTS, points).splitlines() == [
        "Pareto front of H200/example/16x4096x4096:bf16:nt, 2 of 3 configs",
        "",
        "latency µs  energy mJ  config",
        "──────────  ─────────  ──────",
        "      90.4      54.00  x=0",
        "     120.0      31.50  x=1",
    ]
    assert front_json(PARTS, points) == [
        {"latency_ns": 90_400.0, "energy_J": 0.054, "config": Config({"x": 0})},
        {"latency_ns": 120_000.0, "energy_J": 0.0315, "config": Config({"x": 1})},
    ]


def test_unit_without_a_readable_one_is_unchanged():
    text = shown(TASK, ("latency ns", "spread share"), scored((1500.0, 0.02), (1000.0, 0.5)))
    assert text.splitlines()[2:] == [
        "latency µs  spread share  config",
        "──────────  ────────────  ──────",
        "       1.0        0.5000  x=1",
        "       1.5        0.0200  x=0",
    ]
