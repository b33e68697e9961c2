"""Tests of the summary of a campaign, on a result made by hand."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding, Result
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Status
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.campaign import campaign_report
from gemmtune.engine.tables.earlier import EarlierRow, Fate
from gemmtune.engine.tables.loss_limits import LossLimits, RangeLimits
from gemmtune.engine.tables.portfolio import Portfolio
from gemmtune.engine.tables.ranges import RangesReport
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


def test_a_batch_invariant_campaign_says_what_each_row_loses():
    found = result(8e4, 1e5)
    rows = tuple(replace(row, loss=1.739) for row in found.table.rows)
    text, _ = shown("latency", replace(found, table=replace(found.table, rows=rows, batch_invariant=True)))
    header, _, line = text.splitlines()[3:6]
    assert dict(zip(header.split()[-3:], line.split()[-2:], strict=False))["loss"] == "173.9%"
    assert "\nloss: what equal bits cost: the row's config (gemmtune show)" in text
    assert "loss" not in shown("latency", found)[0]


def test_a_baseline_that_failed_is_named_with_its_reason():
    lost = replace(MEASUREMENTS[3], task=Task(TASK.problem, TASK.device, "aten"), reason="no kernel for this shape")
    text, record = shown("latency", replace(result(8e4, None), measurements=(*MEASUREMENTS[:3], lost)))
    assert "1 baseline failed, and the rows ship without a comparison" in text
    assert f"{TASK.problem.name}: wrong_result, no kernel for this shape" in text
    assert record["failed_baselines"] == [
        {"problem": TASK.problem.name, "status": "wrong_result", "reason": "no kernel for this shape"}
    ]
    assert shown("latency", result(8e4, 1e4))[1]["failed_baselines"] == []


SMALL = [Problem.parse(f"{m}x64x32") for m in (16, 32, 64)]
NONE = {"config": None, "score": None, "baseline_score": None, "fraction_of_optimum": None, "lead": None}


def replayed(problem, space, x, time_ns, **changes):
    task, config = Task(problem, TASK.device, space), Config({"x": x} if x else {})
    estimate = Estimate(time_ns, time_ns, time_ns)
    return replace(MEASURED, task=task, config=config, estimate=estimate, evidence=Evidence.REPLAYED, **changes)


def failed(problem, space, reason):
    return replace(replayed(problem, space, 9, 1.0), status=Status.BUILD_FAILED, reason=reason, estimate=None)


def row(problem, space, x, time_ns, baseline_ns, bound):
    kernel, vendor = (
        Choice(name, Config({"x": x} if x else {}), ns, ns, ns, 9, Evidence.REPLAYED, "torch 2.11", "graph-cold-l2")
        for name, x, ns in ((space, x, time_ns), ("aten", 0, baseline_ns))
    )
    return Row(problem, (kernel,), vendor, 0.0, (kernel.config,), bound)


PLAN = Plan(tuple(SMALL), ("triton_mm",), "random", budget=6, seed=3)
FINDINGS = (
    Finding(SMALL[0], "triton_mm", Config({"x": 2}), 8e4, 1e5, 6, {"wrong_result": 1, "invalid": 2}, 0.95, True, 2),
    Finding(SMALL[1], "triton_mm", Config({"x": 3}), 5e4, 4e4, 4, {}, 0.85, False, 1),
    Finding(SMALL[2], "triton_mm", None, None, None, 3, {"build_failed": 3}, None),
)
ROWS = (row(SMALL[0], "triton_mm", 2, 8e4, 1e5, 0.0012), row(SMALL[1], "aten", 0, 4e4, 4e4, None))
REPLAYED = Result(
    Table(TASK.device, ROWS, "latency"),
    FINDINGS,
    (
        replayed(SMALL[0], "triton_mm", 2, 8e4),
        replayed(SMALL[0], "aten", 0, 1e5),
        replayed(SMALL[1], "aten", 0, 4e4),
        failed(SMALL[2], "triton_mm", "no registers"),
        failed(SMALL[2], "aten", "no kernel"),
    ),
    sampler="random",
    damaged=2,
)


def sections(report):
    """Return the title's lines, the cells of the table's lines, and all other lines."""
    title, grid, *others = report.to_text().split("\n\n")
    cells = [re.split(r" {2,}", line.strip()) for line in grid.splitlines() if "─" not in line]
    return title.splitlines(), cells, "\n".join(others).splitlines()


def test_a_replayed_campaign_tells_of_every_search_row_and_file():
    before = replace(ROWS[1], problem=Problem.parse("8x64x32"))
    earlier = [EarlierRow(before, Fate.KEPT, "other problems")]
    files = [Path("out/table.json")]
    report = campaign_report(PLAN, TASK.device, REPLAYED, ["cute: not exported"], files, earlier)
    title, cells, lines = sections(report)
    assert title == [
        "NVIDIA H200, replayed from recorded landscapes: 3 problems in triton_mm",
        "sampler random, budget 6, seed 3",
    ]
    header = "problem|best µs|aten µs|lead|of optimum|regret|evals|failed|rejected|ships|why|found by|best config"
    assert ["|".join(line) for line in cells] == [
        header,
        "16x64x32:bf16:nt|80.0|100.0|+25.0%|0.950|≤ 0.12%|6|1|2|triton_mm|wins|this search|x=2",
        "32x64x32:bf16:nt|50.0|40.0|-20.0%|0.850|-|4|0|0|aten|no other kernel|another|x=3",
        "64x64x32:bf16:nt|-|-|-|-|-|3|3|0|-|-|this search|-",
    ]
    assert [line.partition(":")[0] for line in lines[:2]] == ["wins", "no other kernel"]
    assert lines[2:] == [
        "mean fraction of the recorded optimum: 0.9000",
        "screening stopped 3 of 7 configs early",
        "1 of 3 best configs was found by other campaigns that share the database",
        "rows of the table: 1 aten, 1 triton_mm; nothing worked for 64x64x32:bf16:nt",
        "1 baseline failed, and the rows ship without a comparison. The first: "
        "64x64x32:bf16:nt: build_failed, no kernel",
        "2 damaged rows were left out",
        "kept 1 earlier row of other problems (8x64x32:bf16:nt); --replace drops them",
        "cute: not exported",
        "written:",
        "  out/table.json",
    ]
    record = report.to_json()
    tasks, [now] = record.pop("tasks"), record.pop("earlier")
    assert tasks[0] == {
        "problem": "16x64x32:bf16:nt",
        "space": "triton_mm",
        "config": {"x": 2},
        "score": 8e4,
        "baseline_score": 1e5,
        "evaluations": 6,
        "failures": {"wrong_result": 1, "invalid": 2},
        "fraction_of_optimum": 0.95,
        "stopped_early": 2,
        "found_here": True,
        "lead": 0.25,
        "front": [],
    }
    assert (tasks[1]["lead"], tasks[1]["found_here"]) == (pytest.approx(-0.2), False)
    assert {name: tasks[2][name] for name in NONE} == NONE
    assert (now["problem"], now["fate"], now["reason"], now["now"]) == (
        "8x64x32:bf16:nt",
        "kept",
        "other problems",
        None,
    )
    assert now["before"] == {
        "space": "aten",
        "config": {},
        "time_ns": 4e4,
        "low_ns": 4e4,
        "high_ns": 4e4,
        "evidence": "replayed",
        "protocol": "graph-cold-l2",
        "toolchain": "torch 2.11",
    }
    assert record == {
        "device": "H200",
        "objective": "latency",
        "unit": "ns",
        "sampler": "random",
        "budget": 6,
        "seed": 3,
        "fraction_of_optimum": pytest.approx(0.9),
        "evidence": ["replayed"],
        "stopped_early": 3,
        "rows": 2,
        "portfolio": None,
        "ranges": None,
        "damaged": 2,
        "boards": [],
        "failed_baselines": [{"problem": "64x64x32:bf16:nt", "status": "build_failed", "reason": "no kernel"}],
        "notes": ["cute: not exported"],
        "written": ["out/table.json"],
    }


def test_a_campaign_with_ranges_and_a_portfolio_tells_of_both():
    plan = replace(PLAN, problems=tuple(SMALL[:2]), held_out=(SMALL[2],), ranges=RangeLimits())
    findings = tuple(replace(each, found_here=False) for each in FINDINGS[:2])
    portfolio, ranges = Portfolio(LossLimits(), ()), RangesReport(0, (), (), ())
    found = replace(REPLAYED, findings=findings, ranges=ranges, portfolio=portfolio, damaged=0)
    report = campaign_report(plan, TASK.device, found)
    assert sections(report)[2][4:8] == [
        "2 of 2 best configs were found for the ranges, or by other campaigns that share the database",
        "rows of the table: 1 aten, 1 triton_mm; 1 problem held out, without a row",
        "portfolio: the baseline serves every problem, nothing is compiled",
        "ranges: none, for no problem was tuned at two sizes or more",
    ]
    record = report.to_json()
    assert record["portfolio"] == {"configs": 0}
    assert record["ranges"] == {"ranges": 0, "tuned": [], "probed": [], "held_out": []}


def test_an_estimated_campaign_has_build_resources_in_place_of_a_baseline():
    estimated = tuple(replace(each, evidence=Evidence.ESTIMATED) for each in REPLAYED.measurements[:1])
    findings = (FINDINGS[0], FINDINGS[2])
    table = replace(REPLAYED.table, rows=ROWS[:1])
    found = replace(REPLAYED, table=table, findings=findings, measurements=estimated, damaged=0)
    title, cells, lines = sections(campaign_report(PLAN, TASK.device, found))
    assert title[0] == "NVIDIA H200, built for sm_90a and estimated, not timed: 1 problem in triton_mm"
    resources = "registers|shared B|spilled B|build s"
    assert ["|".join(line) for line in cells] == [
        f"problem|estimated µs|{resources}|regret|evals|failed|rejected|ships|best config",
        "16x64x32:bf16:nt|80.0|168|147456|0|0.5|≤ 0.12%|6|1|2|triton_mm|x=2",
        "64x64x32:bf16:nt|-|-|-|-|-|-|3|3|0|-|-",
    ]
    assert lines == [
        "mean fraction of the recorded optimum: 0.9500",
        "screening stopped 2 of 3 configs early",
        "rows of the table: 1 triton_mm",
    ]


def test_a_campaign_of_two_spaces_names_the_space_and_leaves_empty_columns_out():
    plan = replace(PLAN, spaces=("triton_mm", "cute_gemm"))
    measured = tuple(replace(each, evidence=Evidence.MEASURED) for each in REPLAYED.measurements[:3])
    clean = (replace(FINDINGS[0], failures={}, fraction_of_optimum=None, stopped_early=0),)
    table = replace(REPLAYED.table, rows=(replace(ROWS[0], regret_bound=None),))
    found = replace(REPLAYED, table=table, findings=clean, measurements=measured, damaged=0)
    title, cells, lines = sections(campaign_report(plan, TASK.device, found))
    assert title[0] == "NVIDIA H200, measured: 2 problems in triton_mm, cute_gemm"
    assert cells[0] == ["problem", "space", "best µs", "aten µs", "lead", "evals", "ships", "why", "best config"]
    assert lines[1:] == ["rows of the table: 1 triton_mm; nothing worked for 32x64x32:bf16:nt"]


def test_a_campaign_without_searches_has_no_table():
    found = replace(REPLAYED, table=replace(REPLAYED.table, rows=()), findings=(), measurements=(), damaged=0)
    assert campaign_report(PLAN, TASK.device, found).to_text().splitlines()[-1] == "rows of the table: none"
