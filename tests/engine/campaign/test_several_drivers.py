"""Drivers on one server share the work: each config is evaluated once, and every table is the lone driver's."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from gemmtune.engine.cli import commands
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.store.database import Database

pytestmark = pytest.mark.slow(55, together="waiting")

PROBE = Path(__file__).with_name("driver_probe.py")
EVALUATIONS = 6 * (40 + 1)
"""Evaluations of six problems, with their baselines."""


class Driver:
    """A campaign in a process of its own."""

    def __init__(self, server: subprocess.Popen[str], folder: Path, database: str, **asked: float | None) -> None:
        self.folder, self.table, self.log = folder, folder / "table.json", folder / "submitted"
        folder.mkdir()
        campaign = {"problems": 6, "seconds": 0.04, "limit": None, "database": database, "folder": str(folder)} | asked
        server.stdin.write(f"{json.dumps(campaign)}\n")
        server.stdin.flush()
        self.pid = int(server.stdout.readline())

    def submits_nothing(self, seconds: float = 1.0) -> bool:
        """Whether nothing is submitted for so long."""
        before = len(self.submitted)
        time.sleep(seconds)
        return len(self.submitted) == before

    @property
    def submitted(self) -> list[str]:
        return self.log.read_text().splitlines() if self.log.exists() else []

    @property
    def ended(self) -> bool:
        return (self.folder / "status").exists()

    def wait(self) -> bytes:
        """The table."""
        wait_for(lambda: self.ended, 120, pause=0.02)
        self.said = (self.folder / "said").read_text()
        assert (self.folder / "status").read_text() == "0", self.said
        return self.table.read_bytes()

    def reach(self, submitted: int) -> None:
        while not self.ended and len(self.submitted) < submitted:
            time.sleep(0.02)

    def kill_after(self, submitted: int) -> None:
        self.reach(submitted)
        self.kill()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        wait_for(lambda: self.ended, pause=0.02)


@pytest.fixture(scope="module")
def driver():
    """Return a function that starts a driver: of a folder, a database and what else driver_probe.py takes."""
    with subprocess.Popen([sys.executable, PROBE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        yield partial(Driver, server)
        server.stdin.close()


@pytest.fixture(scope="module")
def alone(tmp_path_factory, driver):
    folder = tmp_path_factory.mktemp("alone")
    return driver(folder / "out", str(folder / "m.db"), seconds=0.0).wait()


@pytest.fixture
def url(postgres_server):
    return postgres_server.new_database()


def held_claims(postgres_server, url: str, dead: int = 0) -> int:
    """Return the number of claims but for those of a dead process, which nobody needs once their results are stored."""
    of_others = f"owner NOT LIKE '% process {dead} %'"
    [(number,)] = postgres_server.execute(f"SELECT count(*) FROM claims WHERE {of_others}", url)
    return number


def test_drivers_at_once_evaluate_every_config_once(postgres_server, url, tmp_path, alone, driver):
    drivers = [driver(tmp_path / str(number), url) for number in range(4)]
    assert {each.wait() for each in drivers} == {alone}
    submitted = [line for each in drivers for line in each.submitted]
    assert len(submitted) == len(set(submitted)) == EVALUATIONS
    assert sum(bool(each.submitted) for each in drivers) > 1
    assert held_claims(postgres_server, url) == 0


def test_drivers_whose_campaigns_overlap_share_what_they_have_in_common(url, tmp_path, alone, driver):
    small, large = driver(tmp_path / "small", url, problems=3), driver(tmp_path / "large", url)
    assert small.wait() != large.wait() == alone
    submitted = small.submitted + large.submitted
    assert len(submitted) == len(set(submitted)) == EVALUATIONS


def test_a_driver_that_is_killed_is_taken_over_at_once_by_another_one_of_its_host(
    postgres_server, url, tmp_path, alone, driver
):
    dying, other = driver(tmp_path / "dying", url), driver(tmp_path / "other", url)
    dying.kill_after(60)
    began = time.monotonic()
    assert other.wait() == alone
    assert time.monotonic() - began < 20  # not the 20 s of a lease, and what was left
    submitted = set(other.submitted)
    assert len(other.submitted) == len(submitted)
    assert len({*dying.submitted, *submitted}) == EVALUATIONS
    assert held_claims(postgres_server, url, dead=dying.pid) == 0


def test_a_driver_of_another_host_that_is_gone_is_taken_over_when_its_leases_end(
    postgres_server, url, tmp_path, alone, driver
):
    first = driver(tmp_path / "first", url)
    first.kill_after(60)
    assert held_claims(postgres_server, url) > 0
    postgres_server.execute("UPDATE claims SET owner = 'elsewhere process 1 aa', until = until - 19", url)
    assert driver(tmp_path / "second", url).wait() == alone
    assert held_claims(postgres_server, url) == 0


def test_a_campaign_whose_time_is_over_does_not_wait_for_another_driver(postgres_server, url, tmp_path, driver):
    hanging = driver(tmp_path / "hanging", url, problems=1)
    hanging.reach(8)
    os.kill(hanging.pid, signal.SIGSTOP)
    postgres_server.execute("UPDATE claims SET until = until + 1000", url)
    limited = driver(tmp_path / "limited", url, problems=1, limit=2)
    limited.wait()
    assert len(limited.submitted) <= 1  # the baseline, if it was not the other's
    hanging.kill()


def test_a_driver_that_is_stopped_waits_for_no_server_that_is_away(postgres_server, url, tmp_path, driver):
    stopped = driver(tmp_path / "stopped", url, seconds=0.1)
    stopped.reach(5)
    postgres_server.stop()
    try:
        time.sleep(1)
        os.kill(stopped.pid, signal.SIGINT)
        wait_for(lambda: stopped.ended, 45)  # not the 600 s of its patience, twice
    finally:
        postgres_server.start()
        if not stopped.ended:
            stopped.kill()
    assert "KeyboardInterrupt" in (stopped.folder / "said").read_text()


def states(place: str) -> list[str]:
    with Database.open(place) as database:
        return [each.state for each in database.campaigns.all()]


def told(place: str, order: str, *values: str) -> None:
    assert commands.run(["campaigns", place, order, *values]) == 0


@pytest.mark.parametrize("kind", ["server", "file"])
def test_a_driver_pauses_goes_on_and_is_cancelled_as_it_is_told(request, tmp_path, kind, driver):
    place = str(tmp_path / "m.db") if kind == "file" else request.getfixturevalue("url")
    one = driver(tmp_path / "told", place, problems=6, seconds=0.25)
    one.reach(2)
    told(place, "pause", "probe-6")
    wait_for(lambda: states(place) == ["paused"])
    assert one.submits_nothing()
    paused_at = len(one.submitted)
    if kind == "server":
        assert held_claims(request.getfixturevalue("postgres_server"), place) == 0
    with Database.open(place) as database:
        planned, unknown = database.tasks()[0].problem, Problem(17, 64, 64)
        added = database.campaigns.add("probe-6", [planned, unknown])
    assert added.answers[planned.name] == "present"
    assert "cannot be added here" in added.answers[unknown.name]
    told(place, "resume", "probe-6")
    one.reach(paused_at + 1)
    told(place, "cancel", "probe-6")
    one.wait()
    assert states(place) == ["cancelled"]
    assert len(one.submitted) < EVALUATIONS


def test_a_driver_of_lower_priority_waits_for_the_higher_one(url, tmp_path, driver):
    low = driver(tmp_path / "low", url, problems=5, seconds=0.5)
    low.reach(2)
    high = driver(tmp_path / "high", url, problems=6, seconds=0.5)
    high.reach(1)
    told(url, "priority", "probe-6", "1")
    wait_for(lambda: states(url) == ["running", "waiting"])
    assert low.submits_nothing()
    told(url, "cancel", "probe-6")
    high.wait()
    wait_for(lambda: states(url) == ["cancelled", "running"])
    told(url, "cancel", "probe-5")
    low.wait()
    assert states(url) == ["cancelled", "cancelled"]


def test_a_second_driver_of_a_file_is_told_and_both_end_with_the_lone_drivers_table(tmp_path, alone, driver):
    place = str(tmp_path / "m.db")
    first = driver(tmp_path / "first", place, seconds=0.12)
    first.reach(20)
    second = driver(tmp_path / "second", place, seconds=0.12)
    assert first.wait() == second.wait() == alone
    lines = [line for line in second.said.splitlines() if "has a driver already" in line]
    assert [
        line.startswith(f"this database file has a driver already, probe-6 (process {first.pid} on ") for line in lines
    ] == [True]
    assert "has a driver already" not in first.said


def wait_for(found: Callable[[], bool], seconds: float = 60, pause: float = 0.05) -> None:
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(pause)
    assert found()
