"""Drivers on one server share the work: each config is evaluated once, and every table is the lone driver's."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmtune.engine.store.database import Database

pytestmark = [pytest.mark.slow(40), pytest.mark.xdist_group("postgres")]

PROBE = Path(__file__).with_name("driver_probe.py")
GEMMTUNE = Path(sys.executable).with_name("gemmtune")
EVALUATIONS = 6 * (40 + 1)
"""Evaluations of six problems, with their baselines."""


class Driver:
    """A campaign in a process of its own."""

    def __init__(
        self, database: str, folder: Path, problems: int = 6, seconds: float = 0.04, limit: tuple[str, ...] = ()
    ) -> None:
        self.table = folder / "table.json"
        self.log = folder / "submitted.txt"
        folder.mkdir()
        command = [sys.executable, str(PROBE), database, str(self.table), str(problems), str(seconds), *limit]
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.PIPE)

    def submits_nothing(self, seconds: float = 3.0) -> bool:
        """Whether nothing is submitted for so long."""
        before = len(self.submitted)
        time.sleep(seconds)
        return len(self.submitted) == before

    @property
    def submitted(self) -> list[str]:
        return self.log.read_text().splitlines()

    def wait(self, at_most: float = 120) -> bytes:
        """The table."""
        self.said = self.process.communicate(timeout=at_most)[1].decode()
        assert self.process.returncode == 0, self.said
        return self.table.read_bytes()

    def reach(self, submitted: int) -> None:
        while self.process.poll() is None and len(self.submitted) < submitted:
            time.sleep(0.01)

    def kill_after(self, submitted: int) -> None:
        self.reach(submitted)
        self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone")
    return Driver(str(folder / "m.db"), folder / "out", seconds=0.0).wait()


@pytest.fixture
def url(postgres_server):
    return postgres_server.new_database()


def held_claims(postgres_server, url: str) -> int:
    [(number,)] = postgres_server.execute("SELECT count(*) FROM claims", url)
    return number


@pytest.mark.parametrize("count", [2, 4])
def test_drivers_at_once_evaluate_every_config_once(postgres_server, url, tmp_path, alone, count):
    drivers = [Driver(url, tmp_path / str(number)) for number in range(count)]
    assert {driver.wait() for driver in drivers} == {alone}
    submitted = [line for driver in drivers for line in driver.submitted]
    assert len(submitted) == len(set(submitted)) == EVALUATIONS
    assert sum(bool(driver.submitted) for driver in drivers) > 1
    assert held_claims(postgres_server, url) == 0


def test_drivers_whose_campaigns_overlap_share_what_they_have_in_common(url, tmp_path, alone):
    small, large = Driver(url, tmp_path / "small", problems=3), Driver(url, tmp_path / "large")
    assert small.wait() != large.wait() == alone
    submitted = small.submitted + large.submitted
    assert len(submitted) == len(set(submitted)) == EVALUATIONS


def test_a_driver_that_is_killed_is_taken_over_at_once_by_another_one_of_its_host(
    postgres_server, url, tmp_path, alone
):
    dying, other = Driver(url, tmp_path / "dying"), Driver(url, tmp_path / "other")
    dying.kill_after(60)
    began = time.monotonic()
    assert other.wait() == alone
    assert time.monotonic() - began < 20  # not the 20 s of a lease, and what was left
    submitted = set(other.submitted)
    assert len(other.submitted) == len(submitted)
    assert len({*dying.submitted, *submitted}) == EVALUATIONS
    assert held_claims(postgres_server, url) == 0


def test_a_driver_of_another_host_that_is_gone_is_taken_over_when_its_leases_end(postgres_server, url, tmp_path, alone):
    first = Driver(url, tmp_path / "first")
    first.kill_after(60)
    assert held_claims(postgres_server, url) > 0
    postgres_server.execute("UPDATE claims SET owner = 'elsewhere process 1 aa', until = until - 16", url)
    assert Driver(url, tmp_path / "second").wait() == alone
    assert held_claims(postgres_server, url) == 0


def test_a_campaign_whose_time_is_over_does_not_wait_for_another_driver(postgres_server, url, tmp_path):
    hanging = Driver(url, tmp_path / "hanging", problems=1)
    hanging.reach(8)
    hanging.process.send_signal(signal.SIGSTOP)
    postgres_server.execute("UPDATE claims SET until = until + 1000", url)
    limited = Driver(url, tmp_path / "limited", problems=1, limit=("2",))
    limited.wait()
    assert len(limited.submitted) <= 1  # the baseline, if it was not the other's
    hanging.process.kill()
    hanging.process.communicate()


def states(place: str) -> list[str]:
    with Database.open(place) as database:
        return [each.state for each in database.campaigns.all()]


def told(place: str, order: str, *values: str) -> None:
    done = subprocess.run([GEMMTUNE, "campaigns", place, order, *values], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["server", "file"])
def test_a_driver_pauses_goes_on_and_is_cancelled_as_it_is_told(request, tmp_path, kind):
    place = str(tmp_path / "m.db") if kind == "file" else request.getfixturevalue("url")
    driver = Driver(place, tmp_path / "told", problems=4, seconds=1.0)
    driver.reach(2)
    told(place, "pause", "probe-4")
    wait_for(lambda: states(place) == ["paused"])
    assert driver.submits_nothing()
    paused_at = len(driver.submitted)
    if kind == "server":
        assert held_claims(request.getfixturevalue("postgres_server"), place) == 0
    told(place, "resume", "probe-4")
    driver.reach(paused_at + 1)
    told(place, "cancel", "probe-4")
    driver.wait()
    assert states(place) == ["cancelled"]
    assert len(driver.submitted) < 4 * 41


def test_a_driver_of_lower_priority_waits_for_the_higher_one(url, tmp_path):
    low = Driver(url, tmp_path / "low", problems=5, seconds=2.0)
    low.reach(2)
    high = Driver(url, tmp_path / "high", problems=6, seconds=2.0)
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


def test_a_second_driver_of_a_file_is_told_and_both_end_with_the_lone_drivers_table(tmp_path, alone):
    place = str(tmp_path / "m.db")
    first = Driver(place, tmp_path / "first", seconds=0.4)
    first.reach(20)
    second = Driver(place, tmp_path / "second", seconds=0.4)
    assert first.wait() == second.wait() == alone
    lines = [line for line in second.said.splitlines() if "has a driver already" in line]
    assert [
        line.startswith(f"this database file has a driver already, probe-6 (process {first.process.pid} on ")
        for line in lines
    ] == [True]
    assert "has a driver already" not in first.said


def wait_for(found: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not found() and time.monotonic() < until:
        time.sleep(0.2)
    assert found()
