"""Campaigns that share a database: each one's summary, report, table and exports say the same numbers."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

import pytest

import gemmtune as gt
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.database import database_report
from gemmtune.engine.report.layout import lead_text
from gemmtune.engine.report.tables import table_report
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.store.database import Database

pytestmark = pytest.mark.slow(15)

B200 = catalogue.device("B200")
PROBLEMS = [Problem.parse("512x1024x512:bf16:nt"), Problem.parse("64x2048x1024:bf16:nt")]
SPACES = ("triton_mm", "cute_gemm")
CAMPAIGNS = 5


def landscape(problem: Problem, space: str) -> Landscape:
    """Return 40 configs of a space, of which few are much faster than the vendor library."""
    task = Task(problem, B200, space)
    configs = list(islice(feasible_configs(registry.space(space), task), 40))
    points = {}
    for config in configs:
        time_ns = 20_000.0 if space == "aten" else 8_000.0 + int(config.digest[:4], 16)
        points[config] = Point(config, Status.OK, time_ns, (time_ns,) * 8)
    context = {"space": space, "device": "B200", "toolchain": "torch 2.11.0", "protocol": "events-cold-l2"}
    return Landscape(problem.name, "a test", registry.space(space).params(task), points, problem, context)


@pytest.fixture(scope="module")
def landscapes():
    return [landscape(problem, space) for problem in PROBLEMS for space in ("aten", *SPACES)]


@pytest.fixture(scope="module")
def tuned(landscapes, tmp_path_factory):
    """Run five campaigns on one database, then each again, the last with a page; return the repeated results, too."""
    folder = tmp_path_factory.mktemp("shared")

    def campaign(number, *, report):
        result = gt.tune(
            space=SPACES,
            sampler="random",
            budget=3 + 2 * number,
            seed=number,
            backend=landscapes,
            database=folder / "shared.db",
            out=folder / str(number),
            report=report,
        )
        return result, folder / str(number)

    for number in range(CAMPAIGNS):
        campaign(number, report=False)
    return folder / "shared.db", [campaign(number, report=number == CAMPAIGNS - 1) for number in range(CAMPAIGNS)]


def test_every_campaign_ships_the_best_of_all(tuned):
    _, results = tuned
    first, *others = [result.table for result, _ in results]
    assert all(other == first for other in others)
    for row in first.rows:
        assert row.choices[0].time_ns < 12_000 < row.baseline.time_ns


def test_summary_report_show_table_and_exports_agree(tuned):
    path, results = tuned
    with Database.open(path, read_only=True) as database:
        record: Any = database_report(database).to_json()
        stored = {each["task"]: each for each in record["tasks"]}
    for result, folder in results:
        table = gt.read_table(folder / "table.json")
        assert table == result.table
        rows: Any = table_report(table).to_json()["rows"]
        shown = {row["problem"]: row for row in rows}
        report = result.report.to_json()
        text = (folder / "summary.txt").read_text()
        assert len(report["tasks"]) == len(PROBLEMS) * len(SPACES)
        for task in report["tasks"]:
            row = next(row for row in table.rows if row.problem.name == task["problem"])
            best = next(choice for choice in row.choices if choice.space == task["space"])
            said = shown[task["problem"]]
            in_database = stored[f"B200/{task['space']}/{task['problem']}"]
            assert dict(best.config) == task["config"] == in_database["best_config"]
            assert best.time_ns == task["score"] == in_database["best_ns"]
            assert row.baseline.time_ns == task["baseline_score"] == said["baseline_ns"]
            assert next(c for c in said["choices"] if c["space"] == task["space"])["time_ns"] == task["score"]
            (line,) = (
                line
                for line in text.splitlines()
                if line.startswith(task["problem"]) and task["space"] in line.split()[1]
            )
            assert f" {best.time_ns / 1e3:.1f} " in line
            assert f" {lead_text(row.baseline.time_ns / best.time_ns - 1)} " in line
            assert row.choices[0].space in line
            assert " ".join(f"{name}={value}" for name, value in best.config.items()).split()[0] in line
        assert exported(folder / "inductor/inductor_table.json") == {
            row.problem.name: (best_in(row, ("triton_mm", "aten")).time_ns) for row in table.rows
        }
        cute = json.loads((folder / "cute/cute_table.json").read_text())["rows"]["cute_gemm"].values()
        assert {entry["problem"]: entry["time_ns"] for entry in cute} == {
            row.problem.name: best_in(row, ("cute_gemm",)).time_ns for row in table.rows
        }
    page = words_of((folder / "report.html").read_text())
    for row in table.rows:
        first = row.choices[0]
        assert f"{row.problem.name} {first.space} {first.time_ns / 1e3:.1f} " in page
        assert f" {row.baseline.time_ns / 1e3:.1f} {lead_text(row.lead)} " in page


def words_of(page):
    """Return the words of a page outside its pictures, with one space between them."""
    return " ".join(re.sub(r"<svg.*?</svg>|<[^>]+>", " ", page, flags=re.DOTALL).split())


def best_in(row, spaces):
    return next(choice for choice in row.choices if choice.space in spaces)


def exported(path):
    rows = json.loads(path.read_text())["rows"]
    return {each["facts"]["problem"]: each["facts"]["time_ns"] for of_product in rows.values() for each in of_product}


def test_the_summary_says_which_winners_another_campaign_found(tuned):
    _, results = tuned
    for result, folder in results:
        tasks = result.report.to_json()["tasks"]
        others = sum(not task["found_here"] for task in tasks)
        text = (folder / "summary.txt").read_text()
        assert others
        assert f"{others} of {len(tasks)} best configs w" in text
        assert text.count("  another  ") == others


def test_alone_a_campaign_says_nothing_of_others(landscapes):
    result = gt.tune(space=SPACES, sampler="random", budget=3, backend=landscapes)
    record: Any = result.report.to_json()
    assert all(task["found_here"] for task in record["tasks"])
    assert "found by" not in result.summary()
