"""A running campaign obeys: pauses, ends, searches what is added, and stops where it gains too little."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.orders import Orders
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.loss_limits import RangeLimits
from gemmtune.engine.tables.table_file import table_text

DECODE, MIDDLE = Problem.parse("16x4096x4096"), Problem.parse("128x2880x2880")
PLAN = Plan(problems=(DECODE, MIDDLE), sampler="random", budget=40)


@pytest.fixture(scope="module")
def landscapes():
    return tuple(landscape for landscape in read_all(embedded()) if landscape.problem in PLAN.problems)


class Follower(Callback):
    """Changes the orders after some measurements, and keeps what it hears."""

    def __init__(self, orders: Orders, after: int = 10, **changes: object) -> None:
        self.orders, self.after, self.changes = orders, after, changes
        self.measured = 0
        self.paused_at: list[int] = []
        self.reasons: set[str] = set()
        self.notices: list[str] = []

    def on_measurement(self, measurement, score, *, known):
        self.measured += 1
        if self.measured == self.after:
            for name, value in self.changes.items():
                setattr(self.orders, name, value)

    def on_load(self, load, seconds_left):
        if self.orders.is_paused:
            self.paused_at.append(self.measured)
            self.orders.is_paused = len(self.paused_at) < 3

    def on_search_end(self, search, reason):
        self.reasons.add(reason)

    def on_notice(self, line):
        self.notices.append(line)


def ordered(plan, landscapes, path, **changes):
    orders = Orders()
    follower = Follower(orders, **changes)
    with Database.open(path) as database:
        return execute(plan, replayed_backend(plan, landscapes), database, [follower], orders), follower


@pytest.fixture(scope="module")
def undisturbed(landscapes, tmp_path_factory):
    found, _ = ordered(PLAN, landscapes, tmp_path_factory.mktemp("undisturbed") / "m.db")
    return table_text(found.table)


def test_a_paused_campaign_submits_nothing_and_goes_on_where_it_was(landscapes, tmp_path, undisturbed):
    found, follower = ordered(PLAN, landscapes, tmp_path / "m.db", is_paused=True)
    assert len(set(follower.paused_at[1:])) == 1
    assert follower.paused_at[-1] < follower.measured
    assert table_text(found.table) == undisturbed


def test_a_cancelled_campaign_has_a_table_of_what_is_done_and_goes_on_later(landscapes, tmp_path, undisturbed):
    found, follower = ordered(PLAN, landscapes, tmp_path / "m.db", is_cancelled=True)
    assert follower.reasons >= {"cancelled"}
    assert follower.measured < 2 * 41
    assert [row.problem for row in found.table.rows]
    again, _ = ordered(PLAN, landscapes, tmp_path / "m.db")
    assert table_text(again.table) == undisturbed


def test_a_cancelled_campaign_measures_no_ranges(landscapes, tmp_path):
    plan = replace(PLAN, ranges=RangeLimits())
    found, follower = ordered(plan, landscapes, tmp_path / "m.db", is_cancelled=True)
    assert follower.measured < 2 * 41
    assert found.table.rows


def test_a_problem_that_is_added_gets_the_row_that_the_plan_would_have_given_it(landscapes, tmp_path, undisturbed):
    plan = PLAN.changed(problems=(DECODE,))
    own = tuple(each for each in landscapes if each.problem == DECODE)
    further = [MIDDLE, DECODE, Problem.parse("17x64x64")]
    found, follower = ordered(plan, own, tmp_path / "m.db", added=further)
    assert table_text(found.table) == undisturbed
    (notice,) = {line for line in follower.notices if "was added" in line}
    assert notice.startswith("17x64x64:bf16:nt was added, and is not searched: ")


def test_a_problem_that_is_added_too_late_is_a_finding_without_evaluations(landscapes, tmp_path):
    plan = replace(PLAN.changed(problems=(DECODE,)), limits=Limits(seconds=1e-9))
    own = tuple(each for each in landscapes if each.problem == DECODE)
    orders = Orders(added=[MIDDLE])
    follower = Follower(orders)
    with Database.open(tmp_path / "m.db") as database:
        found = execute(plan, replayed_backend(plan, own), database, [follower], orders)
    assert [(each.problem, each.evaluations) for each in found.findings] == [(DECODE, 0), (MIDDLE, 0)]
    assert follower.reasons == {"time is over"}


def test_a_campaign_takes_no_problems_while_it_measures_ranges(tmp_path):
    taken: list[bool] = []
    orders = Orders()

    class Watcher(Callback):
        def on_load(self, load, seconds_left):
            taken.append(orders.takes_problems)

    sizes = (DECODE, Problem.parse("2048x4096x4096"))
    landscapes = tuple(landscape for landscape in read_all(embedded()) if landscape.problem in sizes)
    plan = replace(PLAN.changed(problems=sizes), ranges=RangeLimits())
    with Database.open(tmp_path / "m.db") as database:
        execute(plan, replayed_backend(plan, landscapes), database, [Watcher()], orders)
    assert taken == sorted(taken, reverse=True)
    assert {*taken} == {True, False}


@pytest.mark.parametrize("least", [0.5, None])
def test_searching_stops_where_a_gpu_hour_saves_less_than_it_should(landscapes, tmp_path, least):
    seconds = [0.0]

    class Slow(ReplayExecutor):
        def collect(self, timeout_seconds):
            seconds[0] += 10.0
            return super().collect(timeout_seconds)

    plan = PLAN.changed(batch=1)
    searches, follower = replayed_backend(plan, landscapes).searches, Follower(Orders())
    with Database.open(tmp_path / "m.db") as database:
        scheduler = Scheduler(
            searches,
            Slow(landscapes),
            database,
            plan.plugins.objective,
            [follower],
            limits=Limits(stop_gain=least),
            now=lambda: seconds[0],
        )
        scheduler.run()
    assert ("gains too little" in follower.reasons) == (least is not None)
    assert (follower.measured == 2 * 41) == (least is None)
    assert seconds[0] >= 60
