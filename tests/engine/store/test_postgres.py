"""A PostgreSQL server holds what a SQLite file holds, and its loss loses and doubles nothing."""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace

import pytest

pytest.importorskip("psycopg", reason="psycopg is not installed")

import psycopg

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import dialects, schema
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.schema import VERSION

pytestmark = pytest.mark.slow(14, together="waiting")

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800)
TASK, OTHER = Task(Problem(16, 4096, 4096), H200, "triton_mm"), Task(Problem(2048, 4096, 4096), H200, "triton_mm")
TOOLCHAIN = Toolchain((("torch", "2.13.0+cu130"), ("triton", "3.6.0")))


def measured(number: int, task: Task = TASK, **changes: object) -> Measurement:
    ok = Measurement(
        task=task,
        config=Config({"BLOCK_M": number, "split": True, "order": "≠ rows", "share": 0.1 + 0.2}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="cold_l2",
        toolchain=TOOLCHAIN,
        worker="host:0:4711",
        created_at="2026-11-21T10:00:00+00:00",
        samples_ns=(17500.25, 17432.0, 0.1 + 0.2),
        estimate=Estimate(17449.5, 0.1 + 0.2, 17500.25),
        drift=1.0 + 2**-40,
        energy_joules=0.0117,
        error_norm=1.25e-3,
        before=DeviceState(1980, 3201, 41, 432_100),
        build_seconds=0.47,
    )
    return replace(ok, **changes)


FAILED = measured(
    99, status=Status.WRONG_RESULT, reason="off by 0.3\nat [0, 1] \0 \udcff", samples_ns=(), estimate=None, drift=1.0
)
FINAL = Final(
    (Finalist(TASK, Config({"BLOCK_M": 1}), TOOLCHAIN, Estimate(1.0, 0.5, 2.0), (1.0, 2.0), (0.0, 0.0)),),
    "cold_l2",
    "host:0:4711",
    "2026-11-21T10:00:00+00:00",
    (FailedFinalist(TASK, Config({"BLOCK_M": 2}), "off by 0.3"),),
)


@pytest.fixture
def url(postgres_server):
    return postgres_server.new_database()


def test_the_first_level_of_each_gpu_is_found(url):
    def on(number: int, board: str, time_ns: float, task: Task = TASK) -> Measurement:
        return measured(number, task, estimate=Estimate(1.0, 1.0, 1.0, ReferenceLevel("torch 2.13.0", board, time_ns)))

    with Database.open(url) as database:
        database.add([measured(0), on(1, "GPU-b", 0.1 + 0.2), on(2, "GPU-a", 2.0), on(3, "GPU-b", 9.0)])
        database.add([on(4, "GPU-c", 3.0, OTHER), FAILED])
        found = [(level.board, level.time_ns) for level in database.levels(TASK.problem, H200, "cold_l2")]
    assert found == [("GPU-b", 0.1 + 0.2), ("GPU-a", 2.0)]


def test_everything_reads_back_in_insertion_order(url):
    given = [measured(3), FAILED, measured(1, OTHER), measured(2)]
    with Database.open(url) as database:
        assert [database.add(given[:2]), database.add(given[2:]), database.add([])] == [2, 2, 0]
        database.add_final(FINAL)
    escaped = replace(FAILED, reason="off by 0.3\nat [0, 1] \\x00 \\udcff")
    with Database.open(url, read_only=True) as database:
        assert list(database.measurements()) == [given[0], escaped, *given[2:]]
        assert list(database.measurements(OTHER)) == [given[2]]
        assert list(database.known(TASK, "cold_l2", Evidence.MEASURED, TOOLCHAIN).values()) == [
            given[0],
            escaped,
            given[3],
        ]
        assert database.tasks() == (TASK, OTHER)
        assert database.finals(TASK.problem, H200) == [FINAL]


def test_the_first_of_equal_measurements_and_finals_stays(url):
    with Database.open(url) as database:
        assert database.add([measured(1)]) == 1
        assert database.add([measured(1, worker="another"), measured(2), measured(2, worker="another")]) == 1
        database.add_final(FINAL)
        database.add_final(FINAL)
        assert list(database.measurements()) == [measured(1), measured(2)]
        assert database.finals() == [FINAL]


def test_a_batch_larger_than_a_statement_is_stored_and_read_whole(url):
    batch = [measured(number) for number in range(2500)]
    with Database.open(url) as database:
        assert database.add(batch) == 2500
        assert database.add(batch) == 0
        seen = database.measurements()
        assert next(seen) == batch[0]
        database.add([measured(2500)])
        assert list(seen) == [*batch[1:], measured(2500)]


def test_a_batch_that_fails_leaves_nothing_and_the_next_one_works(url):
    with Database.open(url) as database:
        with pytest.raises(StoreError, match=r"cannot write to database postgresql\+psycopg://.*worker"):
            database.add([measured(1), measured(2, OTHER, worker=None)])
        assert (list(database.measurements()), database.tasks()) == ([], ())
        assert database.add([measured(2, OTHER), measured(1)]) == 2


def test_an_empty_newer_or_foreign_database_is_refused(postgres_server, url):
    with pytest.raises(StoreError, match="is empty; `gemmtune tune` fills one"):
        Database.open(url, read_only=True)
    Database.open(url).close()
    postgres_server.execute("UPDATE schema_version SET version = 99", url)
    with pytest.raises(StoreError, match=rf"has schema 99, this gemmtune knows schema {VERSION};"):
        Database.open(url)
    other = postgres_server.new_database()
    postgres_server.execute("CREATE TABLE songs (title TEXT)", other)
    with pytest.raises(StoreError, match=r"something else \(songs, \.\.\.\)"):
        Database.open(other)


def test_a_database_of_an_older_version_is_read_and_gets_digests(postgres_server, url):
    with Database.open(url) as database:
        database.add([measured(0)])
    for table in ("tasks", "toolchains", "measurements", "finals"):
        postgres_server.execute(f"ALTER TABLE {table} DROP COLUMN digest", url)
    for read_only in (True, False):
        with Database.open(url, read_only=read_only) as database:
            assert list(database.measurements()) == [measured(0)]
    with Database.open(url) as database:
        database.add([measured(1)])
        assert len(list(database.measurements())) == 2
    postgres_server.execute("UPDATE measurements SET worker = 'another' WHERE digest IS NOT NULL", url)
    with Database.open(url, notify=lambda line: None) as database:
        assert (list(database.measurements()), database.damaged) == ([measured(0)], 1)


def test_an_unreachable_server_is_an_error_at_once(postgres_server):
    with pytest.raises(StoreError, match=r'cannot open database .*database "nowhere" does not exist'):
        Database.open(postgres_server.url("nowhere"))
    with closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    with pytest.raises(StoreError, match=r"cannot open database .*refused"):
        Database.open(postgres_server.url("test", port))


def test_a_database_of_another_encoding_holds_every_text(postgres_server):
    with Database.open(postgres_server.new_database("SQL_ASCII")) as database:
        database.add([measured(1, reason="≠")])
        assert list(database.measurements()) == [measured(1, reason="≠")]


def test_best_and_measurements_are_chosen_by_the_server(url):
    slow = measured(2, estimate=Estimate(1e5, 1e5, 1e5))
    with Database.open(url) as database:
        database.add([slow, measured(1), FAILED, measured(3, OTHER)])
        assert len(database) == 4
        assert database.best(TASK.problem, device="H200") == measured(1)
        assert database.best(TASK.problem, device="B200") is None
        assert list(database.measurements(OTHER.problem, space="triton_mm", device="H200")) == [measured(3, OTHER)]


def test_a_lost_connection_is_made_again_with_a_notice(postgres_server, url):
    notices = []
    with Database.open(url) as database:
        database.send_notices_to(notices.append)
        database.add([measured(1)])
        assert notices == []
        assert postgres_server.drop_connections() == 1
        assert database.add([measured(2)]) == 1
        lost, back = notices
        assert re.match(rf"database {re.escape(url)} is lost: .*; trying for 600 s to reach it again", lost)
        assert re.match(rf"database {re.escape(url)} is back after \d\.\d s", back)
        postgres_server.drop_connections()
        assert list(database.measurements()) == [measured(1), measured(2)]
        assert len(notices) == 4


class Cutter:
    """Stands between a client and the server; cuts the connection the next `cuts` times that the client says a word.

    `before` the server has heard it, or after it has answered and before the client has heard that.
    """

    def __init__(self, port: int, word: bytes, *, before: bool) -> None:
        self.server, self.word, self.before = port, word, before
        self.cuts = 0
        self.sockets = [socket.create_server(("127.0.0.1", 0))]
        self.port = self.sockets[0].getsockname()[1]
        self.threads = [threading.Thread(target=self._accept)]
        self.threads[0].start()

    def __enter__(self) -> Cutter:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            end(each)
        for thread in self.threads:
            thread.join()
        for each in self.sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.sockets[0].accept()
                server = socket.create_connection(("127.0.0.1", self.server))
                self.sockets += [client, server]
                for ways in ((client, server, True), (server, client, False)):
                    self.threads.append(threading.Thread(target=self._pass_on, args=ways))
                    self.threads[-1].start()

    def _pass_on(self, source: socket.socket, sink: socket.socket, asks: bool) -> None:
        with suppress(OSError):
            while said := source.recv(1 << 16):
                if asks and self.cuts and self.word in said:
                    self.cuts -= 1
                    if not self.before:
                        source.shutdown(socket.SHUT_WR)  # the client hears nothing more
                        sink.sendall(said)
                        time.sleep(0.2)  # the server does what the client asked
                    break
                sink.sendall(said)
        end(source)
        end(sink)


def end(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("word", [b"COMMIT", b"INSERT INTO measurements", b"pg_advisory"])
def test_a_batch_whose_connection_is_cut_anywhere_is_stored_once(postgres_server, url, word, before):
    with Database.open(url) as database:
        database.add([measured(0)])
    with (
        Cutter(postgres_server.port, word, before=before) as cutter,
        Database.open(postgres_server.url(url.rpartition("/")[2], cutter.port)) as database,
    ):
        cutter.cuts = 1
        database.add([measured(number) for number in range(1, 20)])
        assert cutter.cuts == 0
        assert list(database.measurements()) == [measured(number) for number in range(20)]


@pytest.mark.parametrize("before", [True, False])
def test_a_final_whose_connection_is_cut_at_its_commit_is_stored_once(postgres_server, url, before):
    with Database.open(url) as database:
        database.add([measured(0)])
    with (
        Cutter(postgres_server.port, b"COMMIT", before=before) as cutter,
        Database.open(postgres_server.url(url.rpartition("/")[2], cutter.port)) as database,
    ):
        cutter.cuts = 1
        database.add_final(FINAL)
        assert cutter.cuts == 0
        assert database.finals() == [FINAL]


BATCH = 8
ADDER = f"""
import sys
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database

url, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
device = Device("H200", "NVIDIA H200", "sm_90a", 132, 1, 1, 1, 1, 1, 1, 32, 1, 1)
with Database.open(url) as database:
    print("begin", flush=True)
    for batch in range(first, last):
        task = Task(Problem(1 + batch % 7, 64, 64), device, "triton_mm")
        database.add([
            Measurement(Status.OK, task=task, config=Config({{"batch": batch, "member": member}}), protocol="p",
                        evidence=Evidence.MEASURED, toolchain=Toolchain((("torch", str(batch % 3)),)), worker="w",
                        created_at="", samples_ns=(float(batch),) * 20, estimate=Estimate(1.0, 1.0, 1.0))
            for member in range({BATCH})
        ])
        print(batch, flush=True)
"""


def adder(url: str, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-c", ADDER, url, str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def members_by_batch(url: str) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    with Database.open(url) as database:
        for measurement in database.measurements():
            found.setdefault(measurement.config.integer("batch"), []).append(measurement.config.integer("member"))
    return found


def test_processes_that_create_one_database_together_lose_nothing_while_connections_drop(postgres_server, url):
    chance = random.Random(20261121)
    ranges = [(0, 100), (50, 150), (100, 200)]
    children = [adder(url, first, last) for first, last in ranges]
    assert [child.stdout.readline() for child in children] == ["begin\n"] * 3
    ended = 0
    while any(child.poll() is None for child in children):
        time.sleep(chance.uniform(0, 0.2))
        ended += postgres_server.drop_connections()
    assert [len(child.communicate()[0].splitlines()) for child in children] == [100, 100, 100]
    assert [child.returncode for child in children] == [0, 0, 0]
    assert ended >= 3
    found = members_by_batch(url)
    assert sorted(found) == list(range(200))
    assert all(members == list(range(BATCH)) for members in found.values())


def test_kill_9_of_the_writer_and_death_of_the_server_lose_nothing_committed(postgres_server, url):
    chance = random.Random(20261121)
    reported: set[int] = set()
    first = 0
    for round_ in range(4):
        with adder(url, first, 10**9) as child:
            assert child.stdout.readline() == "begin\n"
            time.sleep(chance.uniform(0.05, 0.3))
            if round_ % 2:
                postgres_server.stop("immediate")
                postgres_server.start()
                time.sleep(1.0)  # the writer finds it again
            child.send_signal(signal.SIGKILL)
            said = {int(line) for line in child.stdout.read().splitlines(keepends=True) if line.endswith("\n")}
        assert child.returncode == -signal.SIGKILL
        reported |= said
        found = members_by_batch(url)
        assert reported <= set(found)
        assert all(members == list(range(BATCH)) for members in found.values())
        first = max(found, default=-1) + 1
    assert len(reported) > 20


def test_a_server_lost_for_the_whole_patience_is_an_error_with_the_way_out(postgres_server, url):
    with Database.open(url, patience_seconds=0.3) as database:
        database.add([measured(1)])
        postgres_server.stop()
        try:
            with pytest.raises(StoreError, match=r"is out of reach for .* run the same command again"):
                database.add([measured(2)])
        finally:
            postgres_server.start()
        assert database.add([measured(2)]) == 1
        assert list(database.measurements()) == [measured(1), measured(2)]


def test_a_locked_server_is_waited_for_with_one_word(url):
    notices = []
    with Database.open(url) as database, psycopg.connect(url.replace("+psycopg", "")) as other:
        database.send_notices_to(notices.append)
        other.execute(f"SELECT pg_advisory_xact_lock({0x67656D6D})")
        released = threading.Timer(1.2, other.rollback)
        released.start()
        assert database.add([measured(1)]) == 1
        released.join()
        assert list(database.measurements()) == [measured(1)]
    assert [notice[:24] for notice in notices] == ["waiting for the database"]


@pytest.mark.parametrize("again", ["", "SELECT 1"])
def test_a_writer_that_stands_still_in_a_transaction_holds_nobody_up_for_long(url, monkeypatch, again):
    monkeypatch.setattr(dialects, "_SILENT_MILLISECONDS", 500)
    with Database.open(url) as stopped, Database.open(url, patience_seconds=30) as other:
        added = []

        def write(connection):
            if not added:
                added.append(other.add([measured(1)]))  # while this writer says nothing
            if again:
                connection.exec_driver_sql(again)
            return len(added)

        assert stopped._transactions.write(write) == sum(added) == 1


@pytest.fixture
def guest(postgres_server, url):
    """The database's URL for a role that may read and write rows, and owns nothing."""
    Database.open(url).close()
    postgres_server.execute("DROP ROLE IF EXISTS guest")
    postgres_server.execute("CREATE ROLE guest LOGIN")
    for statement in (
        "GRANT SELECT, INSERT, DELETE ON ALL TABLES IN SCHEMA public TO guest",
        "GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO guest",
    ):
        postgres_server.execute(statement, url)
    yield url.replace("gemmtune@", "guest@")
    postgres_server.execute("DROP OWNED BY guest", url)
    postgres_server.execute("DROP ROLE guest")


def test_a_new_database_has_every_index_and_its_guests_may_write(postgres_server, url, guest):
    found = {name for (name,) in postgres_server.execute("SELECT indexname FROM pg_indexes", url)}
    assert {index.name for index in schema.indexes("postgresql")} <= found
    notices = []
    with Database.open(guest, notify=notices.append) as database:
        assert database.add([measured(1)]) == 1
    assert notices == []


def test_a_guest_of_a_database_without_an_index_is_told_that_it_is_slower(postgres_server, url, guest):
    postgres_server.execute("DROP INDEX measurements_with_energy", url)
    notices = []
    with Database.open(guest, notify=notices.append) as database:
        assert database.add([measured(1)]) == 1
    assert len(notices) == 1
    assert re.search(r"must be owner of table measurements; reading is slower without \w+_with_energy", notices[0])
    Database.open(url).close()
    assert postgres_server.execute("SELECT 1 FROM pg_indexes WHERE indexname = 'measurements_with_energy'", url)


def test_a_guest_of_a_database_without_a_table_is_sent_to_its_owner(postgres_server, url, guest):
    for statement in ("ALTER TABLE campaigns DROP COLUMN answers", "DROP TABLE claims"):
        postgres_server.execute(statement, url)
        with pytest.raises(StoreError, match=r"let its owner open it once .*gemmtune campaigns DB merge DB"):
            Database.open(guest)
        Database.open(url).close()


def test_times_of_an_older_database_are_read_from_json_until_its_owner_adds_their_column(postgres_server, url, guest):
    batch = [measured(x) for x in range(5)]
    with Database.open(url) as database:
        database.add(batch)
        expected = database.counts(), database.fastest_of_each(), database.best(batch[0].task.problem)
    assert expected[1] == batch[:1]  # of equal ones
    postgres_server.execute("ALTER TABLE measurements DROP COLUMN time_ns", url)
    notices = []
    for place, read_only in ((url, True), (guest, False), (url, False)):
        with Database.open(place, read_only=read_only, notify=notices.append) as database:
            found = database.counts(), database.fastest_of_each(), database.best(batch[0].task.problem)
            assert found == expected
    assert any("reading is slower without time_ns" in notice for notice in notices)
    query = "SELECT count(time_ns) FROM measurements"
    timed = sum(each.number for each in expected[0] if each.best_ns is not None)
    assert postgres_server.execute(query, url) == [(timed,)] != [(0,)]
    assert postgres_server.execute("SELECT 1 FROM pg_indexes WHERE indexname = 'measurements_by_kind'", url)


def test_a_refused_batch_is_one_error_and_no_word_of_the_driver(url, guest, postgres_server, caplog):
    postgres_server.execute("REVOKE INSERT ON measurements FROM guest", url)
    with Database.open(guest) as database, pytest.raises(StoreError, match="permission denied for table measurements"):
        database.add([measured(1), measured(2)])
    assert caplog.records == []


def test_a_server_that_is_starting_up_is_waited_for():
    said = b"SFATAL\0C57P03\0Mthe database system is starting up\0\0"
    notices = []

    def answer(server):
        with suppress(OSError):  # until it is closed
            while True:
                asking, _ = server.accept()
                with asking:
                    while len(asking.recv(4096)) == 8:  # a request to encrypt
                        asking.sendall(b"N")
                    asking.sendall(b"E" + (len(said) + 4).to_bytes(4, "big") + said)

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        starting = f"postgresql://gemmtune@127.0.0.1:{server.getsockname()[1]}/test"
        with pytest.raises(StoreError, match=r"is out of reach for \d s .*run the same command again"):
            Database.open(starting, patience_seconds=0.5, notify=notices.append)
        server.shutdown(socket.SHUT_RDWR)
    assert len(notices) == 1
    assert re.search(r"is not ready: .*is starting up; trying for 0 s to reach it", notices[0])
