"""Claims of drivers on a server: one owner each, until a lease ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from gemmtune.engine.store.database import Database
from gemmtune.engine.store.shared.claims import Claims, this_host, work_of

pytestmark = pytest.mark.slow(1, together="waiting")


@pytest.fixture
def database(postgres_server):
    with Database.open(postgres_server.new_database()) as opened:
        yield opened


def gone_process() -> int:
    done = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    return int(done.stdout)


@pytest.fixture
def drivers(database):
    """Make drivers whose leases last half a second."""
    return lambda count: [Claims(database._transactions, 0.5) for _ in range(count)]


def test_a_config_is_one_drivers_until_it_gives_it_back(drivers):
    first, second = drivers(2)
    assert first.take("work", ["a", "b"]) == {"a", "b"}
    assert second.take("work", ["b", "c"]) == {"c"}
    assert first.take("work", ["a", "b", "c"]) == {"a", "b"}  # its own are its own again
    assert second.take("other work", ["a"]) == {"a"}
    first.release([("work", "b"), ("other work", "a")])
    assert second.take("work", ["a", "b"]) == {"b"}
    assert first.take("other work", ["a"]) == set()  # nobody gives back what another driver has
    assert (first.take("work", []), second.others()) == (set(), {first.owner: 1})
    second.release_all()
    assert first.others() == {}


def test_a_lease_ends_unless_it_is_renewed(drivers):
    first, second = drivers(2)
    first.take("work", ["a"])
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        began = time.monotonic()
        first.renew()
        if second.take("work", ["a"]):  # on a busy machine a lease may end before the other driver asks
            assert time.monotonic() - began >= 0.5
            second.release([("work", "a")])
            first.take("work", ["a"])
        time.sleep(0.05)
    time.sleep(0.6)
    assert second.take("work", ["a"]) == {"a"}
    first.renew()
    first.release([("work", "a")])  # it is the other's now
    assert first.take("work", ["a"]) == set()


def test_a_driver_drops_the_ended_claims_of_others(postgres_server, database, drivers):
    gone, other = drivers(2)
    gone.take("work", ["a", "b"])
    time.sleep(0.7)
    other.renew()
    url = database._transactions.engine.url.render_as_string(hide_password=False)
    assert postgres_server.execute("SELECT count(*) FROM claims", url) == [(0,)]


def test_no_lease_ends_while_the_server_is_away(postgres_server, database):
    first, second = (Claims(database._transactions, 600.0) for _ in range(2))
    first.take("work", ["a"])
    url = database._transactions.engine.url.render_as_string(hide_password=False)
    postgres_server.execute("UPDATE claims SET until = until - 700", url)  # away for so long
    postgres_server.stop("fast")
    postgres_server.start()
    second._renewed -= 600
    second.renew()
    assert second.take("work", ["a"]) == set()
    assert second.others() == {first.owner: 1}


def test_the_claims_of_a_dead_process_of_this_host_are_free(drivers):
    dead, other = drivers(2)
    dead.owner = dead.owner.replace(f" {os.getpid()} ", f" {gone_process()} ")
    dead.take("work", ["a"])
    assert other.take("work", ["a"]) == set()
    assert other.others() == {}
    assert other.take("work", ["a"]) == {"a"}


def test_a_process_of_another_container_or_boot_is_not_taken_for_dead(drivers, monkeypatch):
    here = this_host()
    monkeypatch.setattr("os.readlink", lambda path: "pid:[1]")  # a container of the same host name numbers anew
    there, other = drivers(1)[0], this_host()
    assert here != other
    there.owner = there.owner.replace(f" {os.getpid()} ", f" {gone_process()} ")
    there.take("work", ["a"])
    monkeypatch.undo()
    (driver,) = drivers(1)
    assert driver.others() == {there.owner: 1}
    assert driver.take("work", ["a"]) == set()


def test_a_file_has_no_claims(tmp_path):
    with Database.open(tmp_path / "m.db") as database:
        assert database.claims() is None


def test_a_database_of_an_older_version_gets_the_table(postgres_server):
    url = postgres_server.new_database()
    with Database.open(url):
        pass
    postgres_server.execute("DROP TABLE claims", url)
    with Database.open(url) as database:
        claims = database.claims()
        assert claims is not None
        assert claims.take(work_of("a task"), ["a"]) == {"a"}
