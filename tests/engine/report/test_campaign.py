"""Tests of the summary of a campaign, on a result made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding, Result
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Estimate, Status
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.campaign import campaign_report
from gemmtune.engine.testing.objective_conformance import example_measurement

TASK = replace(example_measurement().task, space="triton_mm")
MEASURED = replace(example_measurement(), task=TASK, protocol="graph-cold-l2+energy")


def measurement(x, time_ns, energy_joules, **changes):
    estimate = Estimate(time_ns, time_ns, time_ns)
    config = Config({"x": x})
    return replace(MEASURED, config=config, estimate=estimate, energy_joules=energy_joules, **changes)


MEASUREMENTS = (
    measurement(1, 9e4, 0.05),
    measurement(2, 8e4, 0.06),
    measurement(3, 9.5e4, 0.055),
    replace(MEASURED, config=Config({"x": 4}), status=Status.WRONG_RESULT, reason="off by 2", estimate=None),
    measurement(5, 1e4, 0.01, task=Task(TASK.problem, TASK.device, "aten")),
)


def result(score, baseline_score, regret_bound=None):
    finding = Finding(TASK.problem, TASK.space, Config({"x": 2}), score, baseline_score, 4, {"wrong_result": 1}, None)
    choice = Choice(TASK.space, Config({"x": 2}), 8e4, 8e4, 8e4, 9, MEASURED.evidence, "torch 2.11", MEASURED.protocol)
    table = Table(TASK.device, (Row(TASK.problem, (choice,), None, 0.0, (choice.config,), regret_bound),), "latency")
    return Result(table, (finding,), MEASUREMENTS)


def shown(objective, found):
    plan = Plan((TASK.problem,), (TASK.space,), "random", objective=objective)
    report = campaign_report(plan, TASK.device, found)
    return report.to_text(), report.to_json()


def test_objective_with_two_parts_shows_the_front_of_each_task():
    text, record = shown("latency_energy", result(8e4, 1e4))
    front = text[text.index("Pareto") : text.index("rows of the table")].splitlines()
    assert front == [
        f"Pareto front of {TASK.key}, 2 of 3 configs",
        "",
        "latency µs  energy mJ  config",
        "──────────  ─────────  ──────",
        "      80.0      60.00  x=2",
        "      90.0      50.00  x=1",
        "",
    ]
    assert record["tasks"][0]["front"] == [
        {"latency_ns": 8e4, "energy_J": 0.06, "config": {"x": 2}},
        {"latency_ns": 9e4, "energy_J": 0.05, "config": {"x": 1}},
    ]


def test_objective_without_parts_has_no_front():
    text, record = shown("latency", result(8e4, 1e4))
    assert "Pareto" not in text
    assert record["tasks"][0]["front"] == []


@pytest.mark.parametrize(
    ("objective", "scores", "unit", "headers", "cells"),
    [
        ("latency", (8e4, 1e5), "ns", ["best µs", "aten µs", "lead"], ["80.0", "100.0", "+25.0%"]),
        ("energy", (0.05, 0.06), "J", ["best mJ", "aten mJ", "lead"], ["50.00", "60.00", "+20.0%"]),
    ],
)
def test_scores_are_in_the_objectives_unit(objective, scores, unit, headers, cells):
    text, record = shown(objective, result(*scores))
    header, _, line = text.splitlines()[3:6]
    assert [cell.strip() for cell in header.split("  ") if cell][1:4] == headers
    assert line.split()[1:4] == cells
    task = record["tasks"][0]
    assert (record["objective"], record["unit"]) == (objective, unit)
    assert (task["score"], task["baseline_score"]) == scores


@pytest.mark.parametrize(("regret_bound", "cell"), [(0.0012, "≤ 0.12%"), (None, None)])
def test_regret_bound_of_a_final_is_shown(regret_bound, cell):
    text, _ = shown("latency", result(8e4, 1e5, regret_bound))
    header, _, line = text.splitlines()[3:6]
    assert ("regret" in header, cell in line if cell else "≤" in line) == (cell is not None, cell is not None)


def test_a_baseline_that_failed_is_named_with_its_reason():
    lost = replace(MEASUREMENTS[3], task=Task(TASK.problem, TASK.device, "aten"), reason="no kernel for this shape")
    text, record = shown("latency", replace(result(8e4, None), measurements=(*MEASUREMENTS[:3], lost)))
    assert "1 baseline failed, and the rows ship without a comparison" in text
    assert f"{TASK.problem.name}: wrong_result, no kernel for this shape" in text
    assert record["failed_baselines"] == [
        {"problem": TASK.problem.name, "status": "wrong_result", "reason": "no kernel for this shape"}
    ]
    assert shown("latency", result(8e4, 1e4))[1]["failed_baselines"] == []
