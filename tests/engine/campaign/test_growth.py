"""The work per problem does not grow with the problems of a campaign; calls and statements are counted, not seconds."""

from __future__ import annotations

from collections import Counter
from importlib import metadata

import pytest
from sqlalchemy import Engine, event

from gemmtune.engine.api.table import Table
from gemmtune.engine.api.tune_result import export_everywhere
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import replayed_backend
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

H200 = catalogue.device("H200")
CONFIGS, BUDGET = 12, 8


def landscapes(problems):
    space = registry.space("triton_mm")
    for n in range(1, problems + 1):
        problem = Problem(m=16, n=64 * n, k=64)
        seeds = space.seeds(Task(problem, H200, "triton_mm"))[:CONFIGS]
        points = {config: Point(config, Status.OK, 1000.0 + i, (1000.0 + i,)) for i, config in enumerate(seeds)}
        context = {"space": "triton_mm", "device": "H200", "protocol": "events-cold-l2", "toolchain": "triton 3.6.0"}
        params = space.params(Task(problem, H200, "triton_mm"))
        yield Landscape(problem.name, "memory.csv", params, points, problem, context)


@pytest.fixture
def work(monkeypatch):
    """Numbers of calls and statements so far."""
    found = Counter()

    def count(owner, name, what):
        inner = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *of, **options: (found.update([what]), inner(*of, **options))[1])

    def count_statement(connection, cursor, statement, parameters, context, many):
        found["statements"] += 1

    count(registry, "entry_points", "readings of entry points")
    count(Problem, "__eq__", "comparisons of problems")
    count(metadata.Distribution, "from_name", "look-ups of versions")
    event.listen(Engine, "before_cursor_execute", count_statement)
    yield found
    event.remove(Engine, "before_cursor_execute", count_statement)


def campaign(folder, problems, work):
    """Run a campaign and export its table, twice; yield the work of each."""
    plan, recorded = Plan(sampler="random", budget=BUDGET), tuple(landscapes(problems))
    folder.mkdir()
    for name in ("first", "again"):
        work.clear()
        with Database.open(folder / "m.db") as database:
            found = execute(plan, replayed_backend(plan, recorded), database, ())
        export_everywhere(Table.of(found.table), folder)
        yield name, Counter(work)


def test_work_grows_no_faster_than_the_problems(tmp_path, work):
    few, many = dict(campaign(tmp_path / "few", 10, work)), dict(campaign(tmp_path / "many", 40, work))
    for run in ("first", "again"):
        assert many[run]["readings of entry points"] <= 1, run
        assert many[run]["look-ups of versions"] == few[run]["look-ups of versions"] > 0, run
        assert many[run]["statements"] <= 4 * few[run]["statements"], run
        assert many[run]["comparisons of problems"] < 40 * 39 / 2, run  # every pair
