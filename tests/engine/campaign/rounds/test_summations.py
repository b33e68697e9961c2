"""Batch-invariant campaigns on recorded landscapes, against the best that the landscapes hold."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import pytest

from gemmtune.engine.api.plans import plan_with, read_plan
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.open_backend import open_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.flex.attention import Flex
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.loss_limits import LossLimits

H200, SPACE = catalogue.device("H200"), registry.space("triton_mm")
SIZES = tuple(Problem.parse(f"{m}x4096x14336") for m in (64, 512))
PLAN = Plan(problems=SIZES, budget=24, batch_invariant=True)


@pytest.fixture(scope="module")
def recorded():
    return tuple(landscape for landscape in read_all(embedded()) if landscape.problem in SIZES)


def executed(plan, recorded, path, callbacks=()):
    with Database.open(path) as database:
        return execute(plan, replayed_backend(plan, recorded), database, callbacks)


def order_of(problem, config):
    return SPACE.summation(Task(problem, H200, "triton_mm"), config)


def test_a_campaign_finds_the_order_that_loses_least_in_the_landscapes(recorded, tmp_path):
    best, fastest = defaultdict(dict), {}
    for landscape in recorded:
        problem = landscape.problem
        for config, point in landscape.points.items():
            if point.time_ns is not None:
                fastest[problem] = min(point.time_ns, fastest.get(problem, point.time_ns))
                if landscape.context["space"] == "triton_mm":
                    of_order = best[order_of(problem, config)]
                    of_order[problem] = min(point.time_ns, of_order.get(problem, point.time_ns))
    least, order = min(
        (sum(times[problem] / fastest[problem] - 1 for problem in SIZES), order)
        for order, times in best.items()
        if len(times) == len(SIZES)
    )
    table = executed(replace(PLAN, budget=128), recorded, tmp_path / "m.db").table
    assert table.batch_invariant
    assert {order_of(row.problem, row.choices[0].config) for row in table.rows} == {order}
    assert sum(row.loss for row in table.rows) == pytest.approx(least, abs=0.05)
    assert {order_of(row.problem, row.choice.config) for row in table.ranges} == {order}


def test_the_rounds_measure_the_best_orders_at_every_size_and_repeat_nothing(recorded, tmp_path):
    first = executed(PLAN, recorded, tmp_path / "m.db")
    again = executed(PLAN, recorded, tmp_path / "m.db")
    assert again.table == first.table
    with Database.open(tmp_path / "m.db") as database:
        measured = defaultdict(set)
        for each in database.measurements():
            if each.task.space == "triton_mm":
                measured[each.task.problem].add(order_of(each.task.problem, each.config))
    for row in first.table.rows:
        assert all(order_of(row.problem, row.choices[0].config) in orders for orders in measured.values())


def test_rows_share_a_block_of_k_where_it_is_asked_for_and_lose_more(recorded, tmp_path):
    free, bound = (
        executed(replace(PLAN, budget=128, one_block_k=one), recorded, tmp_path / f"{one}.db").table
        for one in (False, True)
    )
    blocks = [{row.choices[0].config.integer("BLOCK_K") for row in table.rows} for table in (free, bound)]
    assert [len(each) for each in blocks] == [2, 1]
    assert sum(row.loss for row in free.rows) < sum(row.loss for row in bound.rows)


class Notices(Callback):
    def __init__(self):
        self.lines = []

    def on_notice(self, line):
        self.lines.append(line)


def test_a_static_size_that_rules_out_large_tiles_is_said(recorded, tmp_path):
    notices = Notices()
    executed(PLAN, recorded, tmp_path / "m.db", [notices])
    assert [line for line in notices.lines if "dynamic_m" in line] == [
        "batch_invariant: 2 problems have a static m, and a small one has no large tiles: tune them with dynamic_m=true"
    ]


def test_a_campaign_file_and_an_argument_ask_for_equal_bits(tmp_path):
    path = tmp_path / "campaign.toml"
    path.write_text('problems = ["64x4096x14336"]\nbatch_invariant = true\n')
    plan = read_plan(path)
    assert plan.batch_invariant
    assert plan_with(plan, (), batch_invariant=False).batch_invariant, "a flag that is not given leaves the plan's"
    assert plan_with(Plan(), (), batch_invariant=True).plugins.objective.protocol == "graph-cold-l2+bits"
    assert Plan().plugins.objective.protocol == "graph-cold-l2"


ATTENTION = Flex.parse("flex:forward:b1:h4:s64:d64")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"portfolio": LossLimits()}, "batch_invariant and portfolio exclude each other"),
        ({"batch_invariant": False, "one_block_k": True}, "one_block_k is for batch_invariant tables"),
        ({"spaces": ("triton_mm", "cute_splitk")}, "excludes space cute_splitk"),
        ({"spaces": ("decompose_k",)}, "excludes space decompose_k.* leave it out"),
        (
            {"spaces": ("triton_mm", "flex_attention"), "problems": (*PLAN.problems, ATTENTION)},
            f"excludes space flex_attention.* leave {ATTENTION.name} out",
        ),
    ],
)
def test_what_cannot_be_batch_invariant_is_refused(change, said):
    with pytest.raises(UsageError, match=said):
        open_backend(replace(PLAN, **change))
