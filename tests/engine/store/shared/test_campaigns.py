"""Campaigns on a database: who runs what, and what each is told."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.report.progress.registered import RegisteredCampaign
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.shared.campaigns import Account, Campaigns, Instructions, State, Wish

pytestmark = pytest.mark.slow(1, together="waiting")

ACCOUNT = Account(30, 64, 120.0, 90.0, 400.5, 0.05, 2, 0.2, 1.25)


@pytest.fixture(params=["file", "server"])
def store(request, tmp_path):
    if request.param == "file":
        place = str(tmp_path / "m.db")
    else:
        place = request.getfixturevalue("postgres_server").new_database()
    with Database.open(place) as opened:
        yield opened


def gone_process() -> int:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


def change(store: Database, statement: str) -> None:
    store._transactions.write(lambda connection: connection.exec_driver_sql(statement))


def test_a_driver_says_who_it_is_and_how_far_its_campaign_is(store):
    campaigns: Campaigns = store.campaigns
    first, second = campaigns.register("", "1f", "here", 3), campaigns.register("nightly", "2e", "there", 5)
    assert campaigns.report(first, State.RUNNING, ACCOUNT) == Instructions()
    latest, found = campaigns.all()
    assert (latest.id, latest.name, latest.state, latest.problems) == (second, "nightly", "running", 5)
    assert (found.done, found.total, found.gpu_seconds_held, found.gain, found.cost) == (30, 64, 120.0, 0.05, 1.25)
    assert found.name == f"{found.owner}-1f"
    assert (found.host, found.pid, found.location) == (socket.gethostname(), os.getpid(), "here")
    assert 0 <= found.seconds < 60
    assert 0 <= found.silent_seconds < 60
    campaigns.report(first, State.DONE, ACCOUNT)
    assert [each.state for each in campaigns.all()] == ["running", "done"]


def test_every_live_campaign_of_a_name_is_told(store):
    campaigns = store.campaigns
    ended, first, second, other = (campaigns.register(name, "", "here", 1) for name in ("a", "a", "a", "b"))
    campaigns.report(ended, State.DONE, ACCOUNT)
    assert campaigns.tell("a", wish=Wish.PAUSE) == 2
    told = [campaigns.report(each, State.PAUSED, ACCOUNT).wish for each in (first, second, other)]
    assert told == [Wish.PAUSE, Wish.PAUSE, Wish.RUN]
    problems = [Problem(16, 64, 64), Problem(32, 64, 64)]
    first_one, second_one = (problem.name for problem in problems)
    assert campaigns.add("a", problems[:1], 0) == (2, {first_one: ""})
    assert campaigns.add("a", problems, 0) == (2, {first_one: "present", second_one: ""})  # each counts once
    assert campaigns.report(first, State.RUNNING, ACCOUNT).added == tuple(problems)
    with pytest.raises(UsageError, match=r"no campaign .c. runs on .*: a, b"):
        campaigns.tell("c", wish=Wish.CANCEL)


def test_a_driver_takes_over_what_those_of_its_name_were_told(store):
    campaigns, problem = store.campaigns, Problem(16, 64, 64)
    first, killed = (campaigns.register("a", "", "here", 1) for _ in range(2))
    change(store, f"UPDATE campaigns SET seen = seen - 60, host = 'far' WHERE id = {killed}")
    campaigns.add("a", [problem], 0)  # the killed one, whose row is the last, is not told
    campaigns.tell("a", priority=5)
    campaigns.tell("a", wish=Wish.PAUSE)
    again = campaigns.register("a", "", "here", 1)
    assert campaigns.report(again, State.PAUSED, ACCOUNT) == Instructions(Wish.PAUSE, "", (problem,))
    campaigns.tell("a", wish=Wish.CANCEL)
    further = campaigns.register("a", "", "here", 1)
    assert campaigns.report(further, State.RUNNING, ACCOUNT) == Instructions(Wish.RUN, "", (problem,))
    for each in (first, again, further):
        campaigns.report(each, State.DONE, ACCOUNT)
    low, high = campaigns.register("a", "", "here", 1), campaigns.register("b", "", "here", 1)
    campaigns.tell("b", priority=1)
    assert campaigns.report(low, State.RUNNING, ACCOUNT) == Instructions(Wish.RUN, "b", (problem,))
    campaigns.report(high, State.DONE, ACCOUNT)


def test_a_cancelled_campaign_takes_no_further_order_and_stays_cancelled(store):
    number = store.campaigns.register("a", "", "here", 1)
    store.campaigns.tell("a", wish=Wish.CANCEL)
    for wish in Wish:
        with pytest.raises(UsageError, match=r"campaign 'a' is being cancelled and takes no orders"):
            store.campaigns.tell("a", wish=wish)
    follower = RegisteredCampaign(store, number, CampaignState("ns", time.monotonic), None)
    for wish in (Wish.CANCEL, Wish.PAUSE, Wish.RUN):  # two orders at once, or an older version's
        follower._obey(Instructions(wish))
        assert follower.orders.is_cancelled


def test_of_campaigns_at_one_location_the_lower_wait_for_the_highest(store):
    campaigns = store.campaigns
    low, high, elsewhere = (
        campaigns.register(*each, 1) for each in (("low", "", "a"), ("high", "", "a"), ("x", "", "b"))
    )
    campaigns.tell("high", priority=2)
    campaigns.tell("low", priority=-1)
    assert campaigns.report(low, State.RUNNING, ACCOUNT).waits_for == "high"
    assert campaigns.report(high, State.RUNNING, ACCOUNT).waits_for == ""
    assert campaigns.report(elsewhere, State.RUNNING, ACCOUNT).waits_for == ""
    campaigns.report(high, State.PAUSED, ACCOUNT)  # who is paused takes no GPU
    assert campaigns.report(low, State.WAITING, ACCOUNT).waits_for == ""
    campaigns.report(high, State.RUNNING, ACCOUNT)
    change(store, f"UPDATE campaigns SET pid = {gone_process()} WHERE name = 'high'")
    assert campaigns.report(low, State.WAITING, ACCOUNT).waits_for == ""


def test_a_driver_that_died_or_says_nothing_is_lost(store):
    campaigns = store.campaigns
    for name in ("dead", "silent", "ended", "alive"):
        number = campaigns.register(name, "", "here", 1)
        campaigns.report(number, State.STOPPED if name == "ended" else State.RUNNING, ACCOUNT)
    change(store, f"UPDATE campaigns SET pid = {gone_process()} WHERE name IN ('dead', 'ended')")
    change(store, "UPDATE campaigns SET seen = seen - 60, host = 'far' WHERE name = 'silent'")
    assert [each.state for each in campaigns.all()] == ["running", "stopped", "lost", "lost"]
    with pytest.raises(UsageError, match="running: alive"):
        campaigns.tell("silent", wish=Wish.RUN)


def test_a_database_passes_on_no_problem_that_code_describes_and_none_that_is_damaged(store):
    campaigns = store.campaigns
    number = campaigns.register("a", "", "here", 1)
    campaigns.add("a", [Problem(16, 64, 64)], 0)
    change(store, """UPDATE campaigns SET added = added || 'damaged\n{"kind":"none"}\n[]\n'""".replace("\\n", "\n"))
    assert campaigns.report(number, State.RUNNING, ACCOUNT).added == (Problem(16, 64, 64),)


def test_drivers_answer_what_is_added(store):
    campaigns, asked = store.campaigns, [Problem(m, 64, 64) for m in (16, 32, 48)]
    number = campaigns.register("a", "", "here", 1)
    names = [problem.name for problem in asked]
    campaigns.report(number, State.RUNNING, ACCOUNT, dict(zip(asked, ("added", "present", "no space"), strict=True)))
    assert campaigns.add("a", asked) == (1, dict(zip(names, ("added", "present", "no space"), strict=True)))


def test_a_database_of_an_older_version_lists_none_and_gets_the_table_and_its_columns(store):
    name = store._transactions.engine.url.render_as_string(hide_password=False)
    place = name if "postgres" in name else name.removeprefix("sqlite:///")
    change(store, "DROP TABLE campaigns")
    assert store.campaigns.all() == []
    with Database.open(place) as again:
        again.campaigns.register("a", "", "here", 1)
    for column in ("answers", "gain_problems"):
        change(store, f"ALTER TABLE campaigns DROP COLUMN {column}")
    with Database.open(place, read_only=True) as again:
        assert [each.gain_problems for each in again.campaigns.all()] == [0]
    with Database.open(place) as again:
        again.campaigns.register("a", "", "here", 1)
        assert len(again.campaigns.all()) == 2
