"""A campaign that ran to its end is not searched again, and ends with the same table."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gemmtune.engine.campaign import finished
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import read_all, replayed_backend
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.seams import registry
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
    return tuple(landscape for landscape in read_all(embedded()) if landscape.problem in PROBLEMS)


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
        return execute(plan, backend, store, [listener], finished=folder / "asked.json"), listener


def test_a_finished_campaign_asks_no_sampler_and_finds_the_same(tmp_path, recorded, asks):
    first, heard = executed(tmp_path, recorded)
    assert (heard.new, heard.known) == (ALL, 0)
    kept = (tmp_path / "asked.json").read_bytes()
    asks.clear()
    again, heard = executed(tmp_path, recorded)
    assert (heard.new, heard.known) == (0, ALL)
    assert asks == []
    assert again == first
    assert (tmp_path / "asked.json").read_bytes() == kept


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"budget": 24},
        {"batch": 5},
        {"sampler": "random"},
        {"problems": PROBLEMS[:1]},
        {"limits": Limits(regret=1e-9)},
    ],
)
def test_another_campaign_is_searched(tmp_path, recorded, changes):
    executed(tmp_path, recorded)
    kept = (tmp_path / "asked.json").read_bytes()
    plan = replace(PLAN, **changes)
    result, _ = executed(tmp_path, recorded, plan)
    (tmp_path / "apart").mkdir()
    apart, _ = executed(tmp_path / "apart", recorded, plan)
    assert [f.evaluations for f in result.findings] == [f.evaluations for f in apart.findings]
    assert (tmp_path / "asked.json").read_bytes() != kept


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


def test_measurements_of_other_campaigns_do_not_reopen_a_finished_one(tmp_path, recorded, asks):
    first, _ = executed(tmp_path, recorded)
    kept = (tmp_path / "asked.json").read_bytes()
    executed(tmp_path, recorded, replace(PLAN, seed=7))
    (tmp_path / "asked.json").write_bytes(kept)
    asks.clear()
    again, heard = executed(tmp_path, recorded)
    assert asks == []
    assert (heard.new, heard.known) == (0, ALL)
    assert [f.evaluations for f in again.findings] == [f.evaluations for f in first.findings]


def test_a_campaign_that_ran_out_of_time_continues(tmp_path, recorded):
    _, heard = executed(tmp_path, recorded, replace(PLAN, limits=Limits(seconds=1e-9)))
    assert heard.new < ALL
    assert not (tmp_path / "asked.json").exists()
    _, again = executed(tmp_path, recorded)
    assert again.new == ALL - heard.new


def test_the_file_of_another_campaign_is_ignored_without_a_word(tmp_path, recorded):
    (tmp_path / "asked.json").write_text(json.dumps({"campaign": "another", "asked": []}))
    _, heard = executed(tmp_path, recorded)
    assert (heard.new, heard.notices) == (ALL, [])
    assert executed(tmp_path, recorded)[1].known == ALL


DAMAGED = {
    "empty": lambda asked: None,
    "no key": lambda asked: ...,
    "null": lambda asked: None,
    "a search short": lambda asked: asked[1:],
    "a number": lambda asked: [7, *asked[1:]],
    "numbers": lambda asked: [[7] * len(asked[0]), *asked[1:]],
    "nested": lambda asked: [[[digest] for digest in asked[0]], *asked[1:]],
    "empty lists": lambda asked: [[] for _ in asked],
    "no text": lambda asked: [["\ud800", *asked[0][1:]], *asked[1:]],
    "twice": lambda asked: [asked[0][:1] * 2, *asked[1:]],
    "above the budget": lambda asked: [[str(n) for n in range(1000)], *asked[1:]],
}


@pytest.mark.parametrize("damage", ["", "[]", "[" * 100_000, b"\xff", *DAMAGED])
def test_a_damaged_file_is_ignored_with_one_line(tmp_path, recorded, damage):
    path = tmp_path / "asked.json"
    first, _ = executed(tmp_path, recorded)
    kept = path.read_bytes()
    content = json.loads(kept)
    content["asked"] = DAMAGED[damage](content["asked"]) if damage in DAMAGED else None
    text = json.dumps({key: value for key, value in content.items() if value is not ...}).encode()
    path.write_bytes(text if damage in DAMAGED else damage if isinstance(damage, bytes) else damage.encode())
    again, heard = executed(tmp_path, recorded)
    assert (again, heard.new) == (first, 0)
    assert heard.notices == [f"{path} is damaged and ignored: the samplers are asked again, nothing is measured twice"]
    assert path.read_bytes() == kept


def test_a_campaign_that_was_stopped_asks_only_the_samplers_of_unfinished_searches(
    tmp_path, recorded, asks, monkeypatch
):
    monkeypatch.setattr(finished, "_FIRST_WRITE", 1)
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
        execute(PLAN, backend, store, [Stop()], finished=tmp_path / "asked.json")
    asked = json.loads((tmp_path / "asked.json").read_bytes())["asked"]
    assert sum(digests is not None for digests in asked) == 2
    asks.clear()
    resumed, _ = executed(tmp_path, recorded)
    assert len({sampler.search.seed for sampler in asks}) == 1
    assert resumed == undisturbed
    assert (tmp_path / "asked.json").read_bytes() == (tmp_path / "apart" / "asked.json").read_bytes()
