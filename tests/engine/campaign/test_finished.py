"""A campaign that ran to its end is not searched again, and ends with the same table."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace

import pytest

from gemmtune.engine.campaign import finished
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
from gemmtune.engine.store import known, serialization
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

H200 = catalogue.device("H200")
PROBLEMS = (Problem.parse("16x4096x4096"), Problem.parse("128x2880x2880"))
PLAN = Plan(problems=PROBLEMS, sampler="evolution", budget=20, batch=4)
ALL = 2 * (20 + 1)


class Listener(Callback):
    """Counts evaluations."""

    def __init__(self):
        self.known, self.new = 0, 0
        self.notices = []

    def on_measurement(self, measurement, score, *, known):
        self.known += known
        self.new += not known

    def on_notice(self, line):
        self.notices.append(line)


@pytest.fixture(scope="module")
def recorded():
    return read_all(embedded(), frozenset(PROBLEMS))


@pytest.fixture
def asks(monkeypatch):
    """The tasks' samplers, each time one of them is asked."""
    sampler, asked = registry.sampler("evolution"), []
    ask = sampler.ask

    def spy(self, count):
        asked.append(self)
        return ask(self, count)

    monkeypatch.setattr(sampler, "ask", spy)
    return asked


def executed(folder, recorded, plan=PLAN, database="m.db"):
    backend, listener = replayed_backend(plan, recorded), Listener()
    with Database.open(folder / database) as store:
        return execute(plan, backend, store, [listener]), listener


def asked(folder):
    """What the database holds of the searches: campaign, number and digests of each."""
    with sqlite3.connect(folder / "m.db") as connection:
        return connection.execute("SELECT * FROM asked ORDER BY campaign, search").fetchall()


def change(folder, sql, *values):
    with sqlite3.connect(folder / "m.db") as connection:
        assert connection.execute(sql, values).rowcount


def test_a_finished_campaign_asks_no_sampler_and_finds_the_same(tmp_path, recorded, asks):
    first, heard = executed(tmp_path, recorded)
    assert (heard.new, heard.known) == (ALL, 0)
    kept = asked(tmp_path)
    assert len(kept) == 4
    asks.clear()
    again, heard = executed(tmp_path, recorded)
    assert (heard.new, heard.known) == (0, ALL)
    assert asks == []
    assert again == first
    assert asked(tmp_path) == kept


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"budget": 24},
        {"batch": 5},
        {"sampler": "random"},
        {"limits": Limits(regret=1e-9)},
    ],
)
def test_another_campaign_is_searched(tmp_path, recorded, changes):
    executed(tmp_path, recorded)
    kept = asked(tmp_path)
    plan = replace(PLAN, **changes)
    result, _ = executed(tmp_path, recorded, plan)
    (tmp_path / "apart").mkdir()
    apart, _ = executed(tmp_path / "apart", recorded, plan)
    assert [f.evaluations for f in result.findings] == [f.evaluations for f in apart.findings]
    assert set(asked(tmp_path)) > set(kept)


def test_a_problem_more_asks_one_sampler_more(tmp_path, recorded, asks):
    first, _ = executed(tmp_path, recorded, replace(PLAN, problems=PROBLEMS[:1]))
    asks.clear()
    both, heard = executed(tmp_path, recorded)
    assert len({sampler.search.seed for sampler in asks}) == 1
    assert (heard.new, heard.known) == (ALL // 2, ALL // 2)
    asks.clear()
    second, _ = executed(tmp_path, recorded, replace(PLAN, problems=PROBLEMS[1:]))
    assert asks == []
    assert {*first.table.rows, *second.table.rows} == {*both.table.rows}


def test_a_change_that_only_affects_the_table_searches_nothing(tmp_path, recorded, asks):
    executed(tmp_path, recorded)
    asks.clear()
    result, _ = executed(tmp_path, recorded, replace(PLAN, margin=0.5, limits=Limits(seconds=1000)))
    assert asks == []
    assert {row.choices[0].space for row in result.table.rows} == {"aten"}


def test_a_campaign_that_the_database_lacks_is_searched(tmp_path, recorded):
    first, _ = executed(tmp_path, recorded)
    again, heard = executed(tmp_path, recorded, database="other.db")
    assert (heard.new, heard.known) == (ALL, 0)
    assert again == first


def test_campaigns_that_share_a_database_do_not_reopen_each_other(tmp_path, recorded, asks):
    first, _ = executed(tmp_path, recorded)
    other, _ = executed(tmp_path, recorded, replace(PLAN, seed=7))
    asks.clear()
    again, heard = executed(tmp_path, recorded)
    assert asks == []
    assert (heard.new, heard.known) == (0, ALL)
    assert [f.evaluations for f in again.findings] == [f.evaluations for f in first.findings]
    assert executed(tmp_path, recorded, replace(PLAN, seed=7))[0] == other
    assert asks == []


def test_a_campaign_that_ran_out_of_time_continues(tmp_path, recorded):
    _, heard = executed(tmp_path, recorded, replace(PLAN, limits=Limits(seconds=1e-9)))
    assert heard.new < ALL
    assert asked(tmp_path) == []
    _, again = executed(tmp_path, recorded)
    assert again.new == ALL - heard.new


@pytest.mark.parametrize("digests", ["", "0123456789abcdef", "twice", 7, b"\xff", "more"])
def test_a_damaged_row_asks_one_sampler_again_and_is_mended(tmp_path, recorded, asks, digests):
    first, _ = executed(tmp_path, recorded)
    kept = asked(tmp_path)
    search, text = next((key, text) for key, _, text in kept if len(text.split()) == 20)
    damage = {"twice": f"{text[:16]} {text}", "more": f"{text} 0123456789abcdef"}.get(digests, digests)
    change(tmp_path, "UPDATE asked SET digests = ? WHERE campaign = ?", damage, search)
    asks.clear()
    again, heard = executed(tmp_path, recorded)
    assert (again, heard.new) == (first, 0)
    assert len({sampler.search.seed for sampler in asks}) == 1
    assert asked(tmp_path) == kept


def test_a_database_of_an_older_version_gets_the_list_from_the_next_writer(tmp_path, recorded, asks):
    first, _ = executed(tmp_path, recorded)
    kept = asked(tmp_path)
    with sqlite3.connect(tmp_path / "m.db") as connection:
        connection.execute("DROP TABLE asked")
    with Database.open(tmp_path / "m.db", read_only=True) as store:
        assert len(store) == ALL
    asks.clear()
    assert executed(tmp_path, recorded)[0] == first
    assert asks
    assert asked(tmp_path) == kept


def test_a_campaign_that_was_stopped_asks_only_the_samplers_of_unfinished_searches(
    tmp_path, recorded, asks, monkeypatch
):
    monkeypatch.setattr(finished, "_WRITTEN_TOGETHER", 1)
    (tmp_path / "apart").mkdir()
    undisturbed, _ = executed(tmp_path / "apart", recorded)

    class Stop(Callback):
        ended = 0

        def on_search_end(self, search, reason):
            self.ended += 1
            if self.ended == 3:  # behind one problem's baseline and search
                raise KeyboardInterrupt

    backend = replayed_backend(PLAN, recorded)
    with Database.open(tmp_path / "m.db") as store, pytest.raises(KeyboardInterrupt):
        execute(PLAN, backend, store, [Stop()])
    assert len(asked(tmp_path)) == 2
    asks.clear()
    resumed, _ = executed(tmp_path, recorded)
    assert len({sampler.search.seed for sampler in asks}) == 1
    assert resumed == undisturbed
    assert asked(tmp_path) == asked(tmp_path / "apart")


ALL_WRONG = "status = 'wrong_result', estimate = NULL"


@pytest.fixture(scope="module")
def long(tmp_path_factory, recorded):
    """The database of a campaign with far more measurements than another one asks for."""
    folder = tmp_path_factory.mktemp("long")
    executed(folder, recorded, replace(PLAN, sampler="random", budget=300))
    return folder / "m.db"


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "estimate = json_set(estimate, '$.low_ns', 1.0) WHERE id % 7 = 0",  # slow ones that tie
        "config_digest = 'x' WHERE id = (SELECT id FROM ok ORDER BY time LIMIT 1)",
        "status = 'wrong_result', estimate = NULL WHERE id IN (SELECT id FROM ok ORDER BY time LIMIT 50)",
        ALL_WRONG,
    ],
)
def test_measurements_far_behind_are_not_read_and_change_nothing(tmp_path, recorded, long, monkeypatch, damage):
    shutil.copy(long, tmp_path / "m.db")
    if damage:
        ok = (
            "WITH ok AS (SELECT id, json_extract(estimate, '$.time_ns') AS time FROM measurements WHERE status = 'ok') "
        )
        change(tmp_path, f"{ok if 'FROM ok' in damage else ''}UPDATE measurements SET {damage}")
    decoded = []
    read = serialization.measurement_of
    monkeypatch.setattr(serialization, "measurement_of", lambda *row: decoded.append(row) or read(*row))
    few, _ = executed(tmp_path, recorded)
    narrow, decoded[:] = len(decoded), []
    monkeypatch.setattr(known, "_FEW", 10**6)
    every, _ = executed(tmp_path, recorded)
    assert (few.table, few.findings, few.measurements) == (every.table, every.findings, every.measurements)
    assert narrow < len(decoded) / 2 or damage == ALL_WRONG
