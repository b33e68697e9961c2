"""Damaged, foreign and read-only databases: a right answer or one line, and nothing left behind."""

from __future__ import annotations

import os
import random
import re
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import ColumnElement, Select, literal

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.catalogue import device
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError, StoreError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.database import database_report
from gemmtune.engine.report.status import status_report
from gemmtune.engine.store import queries
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import merge

H200 = device("H200")
TASK = Task(Problem(16, 4096, 4096), H200, "triton_mm")
TOOLCHAIN = Toolchain((("torch", "2.13.0"),))
GROUP = 7777
ALICE, BOB = 65_001, 65_002
"""Users of one group; the first owns the database."""


def measured(number: int, task: Task = TASK, **changes: object) -> Measurement:
    time_ns = 50_000.0 - number
    fields: dict = {
        "status": Status.OK,
        "task": task,
        "config": Config({"BLOCK_M": 16 * number, "num_warps": 4}),
        "evidence": Evidence.MEASURED,
        "protocol": "graph-cold-l2",
        "toolchain": TOOLCHAIN,
        "worker": "host:0",
        "created_at": "2026-11-21T10:00:00Z",
        "samples_ns": (time_ns - 10, time_ns, time_ns + 10),
        "estimate": Estimate(time_ns, time_ns - 10, time_ns + 10),
    }
    return Measurement(**fields | changes)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def read(path: Path) -> int:
    with Database.open(path, read_only=True) as database:
        return len(list(database.measurements()))


def write(path: Path, *numbers: int) -> None:
    with Database.open(path) as database:
        database.add([measured(number) for number in numbers])


def left_by_a_killed_writer(path: Path) -> None:
    """Leave the log and its index as a writer leaves them that is killed."""
    if os.fork() == 0:
        write_and_die(path)
    os.wait()


def write_and_die(path: Path) -> None:
    database = Database.open(path)
    database.add([measured(99)])
    os._exit(0)


@pytest.fixture
def path(tmp_path):
    write(tmp_path / "m.db", 1, 2, 3)
    return tmp_path / "m.db"


def test_a_reader_leaves_the_folder_as_it_was(path):
    before = path.read_bytes(), path.stat()
    assert names(path.parent) == ["m.db"]
    with Database.open(path, read_only=True) as database:
        assert len(list(database.measurements())) == len(database) == 3
        assert names(path.parent) == ["m.db"]
    assert names(path.parent) == ["m.db"]
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before[0], before[1].st_mtime_ns)


def test_a_reader_cannot_write(path):
    with Database.open(path, read_only=True) as database, pytest.raises(GemmtuneError, match="readonly"):
        database.add([measured(4)])
    assert read(path) == 3


def test_a_reader_sees_what_a_writer_adds_meanwhile(path):
    with Database.open(path, read_only=True) as reader:
        assert len(reader) == 3
        with Database.open(path) as writer:
            writer.add([measured(4)])
            assert len(reader) == 4
            writer.add([measured(5)])
            assert len(list(reader.measurements())) == 5
        assert len(reader) == 5
    write(path, 6)
    assert read(path) == 6


def test_a_reader_sees_the_log_of_a_killed_writer(path):
    left_by_a_killed_writer(path)
    assert names(path.parent) == ["m.db", "m.db-shm", "m.db-wal"]
    assert read(path) == 4


@pytest.mark.parametrize("name", ["a b%20?#é.db", "'\"&mode=rw.db"])
def test_a_path_may_hold_any_character(tmp_path, name):
    write(tmp_path / name, 1)
    assert read(tmp_path / name) == 1
    assert names(tmp_path) == [name]


def test_a_path_that_is_no_text_is_refused(tmp_path):
    with pytest.raises(StoreError, match="not UTF-8"):
        Database.open(tmp_path / os.fsdecode(b"\xff.db"))


FINAL = Final(
    tuple(
        Finalist(TASK, measured(n).config, TOOLCHAIN, Estimate(50.0 + n, 49.0, 60.0), (50.0,) * 4, behind, run=2)
        for n, behind in ((3, (0.0, 0.0)), (2, (-0.01, 0.02)))
    ),
    "graph-cold-l2",
    "host:0",
    "2026-11-21T10:00:00Z",
    (FailedFinalist(TASK, measured(1).config, "off by 0.3"),),
)

DAMAGES = {
    "a time within its interval": ("estimate", lambda text: '{"time_ns":1.0,"low_ns":1.0,"high_ns":1.0}'),
    "a sample": ("samples_ns", lambda text: text.replace("49997.0", "49998.0")),
    "a worker": ("worker", lambda text: "host:1"),
    "a reason": ("reason", lambda text: "none"),
    "an error norm": ("error_norm", lambda text: "0.5"),
    "a time of day": ("created_at", lambda text: "2026-11-22T10:00:00Z"),
    "another toolchain": ("toolchain_id", lambda number: 2),
    "a drift within bounds": ("drift", lambda value: 1.5),
    "an energy within bounds": ("energy_joules", lambda value: 1.5),
    "a build time": ("build_seconds", lambda value: 1.5),
    "its digest": ("digest", lambda text: "0" * 8),
    "another config": ("config", lambda text: text.replace('"num_warps":4', '"num_warps":8')),
    "a config that is a list": ("config", lambda text: "[1]"),
    "a config cut short": ("config", lambda text: text[:-1]),
    "a digest": ("config_digest", lambda text: "0" * 16),
    "a status": ("status", lambda text: "oK"),
    "a failure with a time": ("status", lambda text: "timed_out"),
    "an evidence": ("evidence", lambda text: "replayEd"),
    "a low end above the time": ("estimate", lambda text: text.replace('"low_ns":4', '"low_ns":9')),
    "a time of 401 digits": ("estimate", lambda text: text.replace('"time_ns":', '"time_ns":' + "1" * 400)),
    "a time of 5000 digits": ("estimate", lambda text: text.replace('"time_ns":', '"time_ns":' + "1" * 5000)),
    "a time that is text": ("estimate", lambda text: '{"time_ns":"1","low_ns":"1","high_ns":"1"}'),
    "a time that is not a number": ("estimate", lambda text: '{"time_ns":NaN,"low_ns":NaN,"high_ns":NaN}'),
    "a negative time": ("estimate", lambda text: '{"time_ns":-5,"low_ns":-6,"high_ns":-4}'),
    "a field's name": ("estimate", lambda text: text.replace("high_ns", "hiGh_ns")),
    "no estimate": ("estimate", lambda text: None),
    "a deep estimate": ("estimate", lambda text: "[" * 100_000),
    "no samples": ("samples_ns", lambda text: "[]"),
    "samples that are text": ("samples_ns", lambda text: '["1"]'),
    "an infinite sample": ("samples_ns", lambda text: "[1,Infinity]"),
    "samples that are no JSON": ("samples_ns", lambda text: "[1,"),
    "outliers": ("outliers", lambda text: "{}}"),
    "bytes that are no text": ("worker", lambda text: b"host\xff"),
    "text that is not UTF-8": ("worker", b"host\xff"),
    "a drift": ("drift", lambda value: -1.0),
    "a drift that is text": ("drift", lambda value: "x"),
    "an energy": ("energy_joules", lambda value: float("inf")),
    "a state": ("before", lambda text: '{"sm_clock_mhz":"x"}'),
    "a task": ("task_id", lambda number: 99),
    "a toolchain": ("toolchain_id", lambda number: 99),
}


def damage(path: Path, column: str, change: object, table: str = "measurements", number: int = 3) -> None:
    with sqlite3.connect(path) as connection:
        old = connection.execute(f'SELECT "{column}" FROM {table} WHERE id = ?', (number,)).fetchone()[0]
        new, value = ("CAST(? AS TEXT)", change) if isinstance(change, bytes) else ("?", change(old))
        assert value != old
        connection.execute(f'UPDATE {table} SET "{column}" = {new} WHERE id = ?', (value, number))
    connection.close()


@pytest.mark.parametrize("damaged", DAMAGES)
def test_a_damaged_measurement_is_named_once_and_left_out(path, damaged):
    with sqlite3.connect(path) as connection:  # one more that a damaged row may name
        connection.execute('INSERT INTO toolchains (versions) VALUES (\'[["torch","2.12.0"]]\')')
    connection.close()
    damage(path, *DAMAGES[damaged])
    notices: list[str] = []
    with Database.open(path) as database:
        database.send_notices_to(notices.append)
        for _ in range(2):
            assert list(database.measurements()) == [measured(1), measured(2)]
        assert database.best(TASK.problem) == measured(2)
        assert database.damaged == 1
        assert set(database.known(TASK, "graph-cold-l2", Evidence.MEASURED, TOOLCHAIN)) <= {
            measured(number).config for number in (1, 2)
        }
        (notice,) = notices
        assert notice.startswith(f"measurement 3 of database sqlite:///{path} is damaged and left out: ")
        assert len(notice) < 600
        status_report(database, datetime(2026, 11, 21, tzinfo=UTC)).to_text()
        assert "1 damaged row was left out" in database_report(database).to_text()
        with Database.open(path.with_name("other.db")) as other:
            found = merge(other, database)
            assert (found.measurements, found.new, found.damaged) == (2, 2, 1)


@pytest.mark.parametrize("damaged", ["a low end above the time", "no estimate", "a deep estimate"])
@pytest.mark.parametrize("report", [database_report, lambda store: status_report(store, datetime.now(UTC))])
def test_a_report_that_counts_names_a_damaged_time_and_leaves_it_out(path, damaged, report):
    damage(path, *DAMAGES[damaged])
    notices: list[str] = []
    with Database.open(path, read_only=True) as database:
        database.send_notices_to(notices.append)
        report(database)
        assert [each.number for each in database.counts()] == [2]
    (notice,) = notices
    assert notice.startswith(f"measurement 3 of database sqlite:///{path} is damaged and left out: ")


OLD = {  # damages that a row without a digest shows, too
    *("another config", "a config that is a list", "a config cut short", "a digest", "a status", "an evidence"),
    *("a failure with a time", "a low end above the time", "a time of 401 digits", "a time that is text"),
    *("a negative time", "no estimate", "a deep estimate", "no samples", "an infinite sample", "outliers"),
    *("bytes that are no text", "text that is not UTF-8", "a drift", "a drift that is text", "an energy", "a state"),
}


def make_old(path: Path) -> None:
    """Take from a database what older versions did not write."""
    with sqlite3.connect(path) as connection:
        for table in ("tasks", "toolchains", "measurements", "finals"):
            connection.execute(f"ALTER TABLE {table} DROP COLUMN digest")
        connection.execute("UPDATE finals SET content = replace(content, '\"failed\"', '\"refuted\"')")
    connection.close()


@pytest.mark.parametrize("damaged", sorted(OLD))
def test_a_damaged_measurement_of_an_older_version_is_left_out(path, damaged):
    make_old(path)
    damage(path, *DAMAGES[damaged])
    for read_only in (True, False):
        with Database.open(path, read_only=read_only, notify=ignore) as database:
            assert list(database.measurements()) == [measured(1), measured(2)]
            assert database.damaged == 1


def test_a_database_of_an_older_version_is_read_and_gets_digests_for_new_rows(path):
    with Database.open(path) as database:
        database.add_final(FINAL)
    make_old(path)
    content = path.read_bytes()
    with Database.open(path, read_only=True) as database:
        assert list(database.measurements()) == [measured(number) for number in (1, 2, 3)]
        assert (database.finals(), database.best(TASK.problem)) == ([FINAL], measured(3))
        status_report(database, datetime(2026, 11, 21, tzinfo=UTC)).to_text()
        with Database.open(path.with_name("other.db")) as other:
            assert merge(other, database).new == 3
            assert list(other.measurements()) == list(database.measurements())
    assert path.read_bytes() == content
    with Database.open(path) as database:
        assert database.add([measured(3), measured(4)]) == 1
        assert not database.add_final(FINAL)  # its word for what failed was another
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT digest IS NULL FROM measurements ORDER BY id").fetchall() == [
            *[(1,)] * 3,
            (0,),
        ]
    connection.close()
    assert read(path) == 4


@pytest.mark.parametrize("table", ["tasks", "toolchains"])
def test_a_row_of_a_damaged_reference_is_left_out(path, table):
    column = "device" if table == "tasks" else "versions"
    damage(path, column, lambda text: text.replace("13", "14"), table, 1)
    with Database.open(path, notify=ignore) as database:
        assert list(database.measurements()) == []


@pytest.mark.parametrize("report", [database_report, lambda store: status_report(store, datetime.now(UTC))])
def test_a_report_does_not_show_a_changed_time_as_the_best(path, report):
    damage(path, *DAMAGES["a time within its interval"], number=1)
    with Database.open(path, read_only=True, notify=ignore) as database:
        text = report(database).to_text()
    assert "50.0" in text
    assert "1 damaged row was left out" in text
    assert "2 measurements" in text


KEY = TASK, "graph-cold-l2", Evidence.MEASURED, TOOLCHAIN


@pytest.mark.parametrize(
    "damaged", ["another config", "a status", "a low end above the time", "text that is not UTF-8"]
)
def test_a_config_that_is_measured_again_replaces_its_damaged_row(path, damaged):
    damage(path, *DAMAGES[damaged])
    with Database.open(path) as database:
        assert measured(3).config not in database.known(*KEY)
        assert database.add([measured(2), measured(3), measured(4)]) == 2
        assert list(database.measurements()) == [measured(number) for number in (1, 2, 3, 4)]
    assert read(path) == 4


@pytest.mark.parametrize(
    ("column", "change"),
    [
        ("problem", lambda text: text.replace('"m":"16"', '"m":"17"')),
        ("problem", lambda text: "[" * 100_000),
        ("device", lambda text: text.replace("132", '"x"')),
        ("space", lambda text: "triton_mN"),
        ("key", lambda text: "H200"),
        ("space", b"\xff"),
    ],
)
def test_a_damaged_task_is_named_and_its_measurements_are_left_out(path, column, change):
    other = Task(Problem(1, 64, 64), H200, "triton_mm")
    with Database.open(path) as database:
        database.add([measured(1, other)])
    damage(path, column, change, "tasks", 1)
    notices: list[str] = []
    with Database.open(path, read_only=True) as database:
        database.send_notices_to(notices.append)
        assert list(database.measurements()) == [measured(1, other)]
        assert database.tasks() == (other,)
        assert [each.task for each in database.counts()] == [other]
        assert database.known(*KEY) == {}
        assert len(notices) == len(set(notices)) == database.damaged == 4


def test_a_count_from_a_damaged_index_is_left_out(path, monkeypatch):
    monkeypatch.setattr(
        queries, "counts", lambda *_, found=queries.counts: found().with_only_columns(*damaged_columns(found()))
    )
    with Database.open(path, read_only=True) as database:
        assert database.counts() == ()
        assert database.damaged == 1


def damaged_columns(statement: Select) -> list[ColumnElement]:
    """Return the columns of a query, a text in place of the best time."""
    return [literal("5").label(c.name) if c.name == "best_ns" else c for c in statement.selected_columns]


def test_a_damaged_key_of_a_task_stops_its_campaign_and_names_the_way_out(path):
    damage(path, "key", lambda text: "H200", "tasks", 1)
    with (
        Database.open(path) as database,
        pytest.raises(StoreError, match="`gemmtune campaigns NEW merge OLD` copies what is whole"),
    ):
        database.add([measured(4)])
    assert read(path) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace('"time_ns":53.0', '"time_ns":93.0'),
        lambda text: text.replace('"finalists":[', '"finalists":[7,'),
        lambda text: '{"finalists":[],"failed":[]}',
        lambda text: text.replace("samples_ns", "samples"),
        lambda text: text.replace("[50.0,", "[null,"),
        lambda text: text.replace("[-0.01,", "[0.5,"),
        lambda text: text.replace("[-0.01,", "[0.01,0.01,"),
        lambda text: text.replace('"space":"triton_mm"', '"space":7'),
        lambda text: text.replace('"BLOCK_M":48', '"BLOCK_M":[48]'),
        lambda text: text[1:],
        lambda text: "[" * 100_000,
        lambda text: b"\xff",
    ],
)
def test_a_damaged_final_is_named_and_left_out(path, change):
    whole = replace(FINAL, created_at="2026-11-22T10:00:00Z")
    with Database.open(path) as database:
        database.add_final(FINAL)
        database.add_final(whole)
    damage(path, "content", change, "finals", 1)
    with Database.open(path) as database:
        assert database.finals() == [whole]
        assert database.damaged == 1


def test_an_index_that_lacks_a_kind_of_row_ends_the_report_with_one_line(path):
    content = path.read_bytes()
    damaged = content.replace(b"measuredgraph-cold-l2", b"measuredgraph-cold-l3")  # the order of that index
    assert damaged != content
    path.write_bytes(damaged)
    with Database.open(path, read_only=True) as database:
        with pytest.raises(StoreError, match="an index of the database lacks H200"):
            database_report(database)
        assert len(list(database.measurements())) == 3


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("id INTEGER NOT NULL", "id INTEGES NOT NULL", "has lost its ids; restore a copy"),
        ("PRIMARY KEY (id)", "PRIMARY KEY (ie)", "cannot open database"),
        ("CREATE TABLE measurements", "CREATE TABLE m\xffasurements", "database"),
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_schema_is_one_line(path, old, new, said, read_only):
    content = path.read_bytes()
    changed = content.replace(old.encode(), new.encode("latin-1"))
    assert changed != content
    path.write_bytes(changed)
    with pytest.raises(StoreError, match=re.escape(said)) as raised:
        Database.open(path, read_only=read_only)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_damaged_type_of_a_column_does_not_stop_the_reading(path, read_only):
    content = path.read_bytes()
    path.write_bytes(content.replace(b"reason TEXT", b"reason T\xc5XT"))
    damage(path, *DAMAGES["a worker"])  # the schema is read with any text
    with Database.open(path, read_only=read_only, notify=ignore) as database:
        assert list(database.measurements()) == [measured(1), measured(2)]


def test_any_flipped_bit_gives_an_answer_or_one_line(tmp_path):
    path, other = tmp_path / "whole.db", tmp_path / "flipped.db"
    tasks = [Task(Problem(m, 4096, 4096), H200, space) for m in (1, 2) for space in ("aten", "triton_mm")]
    with Database.open(path) as database:
        database.add([measured(number, task) for number in range(1, 8) for task in tasks])
        database.add_final(FINAL)
        whole = list(database.measurements())
    content = path.read_bytes()

    pages = len(content) // 4096
    chosen = random.Random(0)
    for bit in [chosen.randrange(8 * 4096 * page, 8 * 4096 * (page + 1)) for page in (0, 0, *range(pages))]:
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << bit % 8
        other.write_bytes(flipped)
        for use in (use_as_reader, use_as_writer):
            try:
                with Database.open(other, read_only=use is use_as_reader) as database:
                    database.send_notices_to(ignore)
                    found = use(database)
            except StoreError as error:
                ignore(str(error))
                continue
            assert {*found} <= {*whole}, bit
        for end in ("-wal", "-shm"):
            other.with_name(other.name + end).unlink(missing_ok=True)


def ignore(line: str) -> None:
    assert "\n" not in line


def use_as_reader(database: Database) -> list[Measurement]:
    found = list(database.measurements())
    status_report(database, datetime(2026, 11, 21, tzinfo=UTC)).to_text()
    database_report(database).to_text()
    with Database.open("sqlite://") as into:
        merge(into, database)
    return found


def use_as_writer(database: Database) -> list[Measurement]:
    task = Task(Problem(1, 4096, 4096), H200, "triton_mm")
    database.levels(task.problem, H200, "graph-cold-l2")
    found = database.known(task, *KEY[1:])
    database.known(task, *KEY[1:], [m.config.digest for m in found.values()])
    database.add([measured(number, task) for number in range(1, 9)])
    database.add_final(FINAL)
    return list(found.values())


class Team:
    """A folder that Alice and Bob may write, and what each does in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "m.db"

    def run(self, user: int, work: Callable[..., object], *arguments: object) -> str:
        """Return what a user's process printed last: the result of `work`, or the error's message."""
        outgoing, incoming = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # a process with threads forks
            child = os.fork()
        if child == 0:
            try:
                os.setgroups([GROUP])
                os.setgid(user)
                os.setuid(user)
                os.umask(0o022)
                found = str(work(self.path, *arguments))
            except GemmtuneError as error:
                found = f"refused: {error}"
            except BaseException as error:
                found = f"traceback: {error!r}"
            os.write(incoming, found.encode())
            os._exit(0)
        os.close(incoming)
        with os.fdopen(outgoing) as stream:
            found = stream.read()
        os.waitpid(child, 0)
        return found

    def owners(self) -> set[int]:
        return {path.stat().st_uid for path in self.folder.iterdir()}


@pytest.fixture
def team():
    if os.geteuid() != 0:
        pytest.skip("only root can act as two users")
    folder = Path(tempfile.mkdtemp(prefix="gemmtune-team-", dir="/tmp"))
    os.chown(folder, ALICE, GROUP)
    folder.chmod(0o2775)
    try:
        found = Team(folder)
        assert found.run(ALICE, write, 1, 2) == "None"
        yield found
    finally:
        shutil.rmtree(folder)


def test_a_status_of_another_user_does_not_stop_the_owner(team):
    assert team.run(BOB, read) == "2"
    assert team.owners() == {ALICE}
    assert team.run(ALICE, write, 3) == "None"
    assert team.run(BOB, read) == "3"


def test_another_user_reads_what_a_killed_owner_left(team):
    team.run(ALICE, write_and_die)
    assert names(team.folder) == ["m.db", "m.db-shm", "m.db-wal"]
    assert team.run(BOB, read) == "3"
    assert team.owners() == {ALICE}
    assert team.run(ALICE, write, 3) == "None"
    assert names(team.folder) == ["m.db"]


def test_a_finished_database_is_read_where_nobody_may_write(team):
    team.folder.chmod(0o555)
    team.path.chmod(0o444)
    assert team.run(BOB, read) == team.run(ALICE, read) == "2"
    assert names(team.folder) == ["m.db"]


def test_what_a_killed_owner_left_is_read_where_nobody_may_write(team):
    team.run(ALICE, write_and_die)
    team.folder.chmod(0o555)
    for file in team.folder.iterdir():
        file.chmod(0o444)
    assert team.run(BOB, read) == "3"


def test_a_read_only_mount_can_be_read(team):
    mount = team.folder.with_name(team.folder.name + "-ro")
    mount.mkdir()
    try:
        if os.system(f"mount --bind {team.folder} {mount} 2>/dev/null && mount -o remount,bind,ro {mount} 2>/dev/null"):
            pytest.skip("mounts are not allowed here")
        assert read(mount / "m.db") == 2
    finally:
        os.system(f"umount {mount} 2>/dev/null")
        mount.rmdir()


def test_a_writer_names_the_foreign_file_that_stops_it_and_what_helps(team):
    def leave_open(path: Path) -> None:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)  # as readers did before
        connection.execute("SELECT count(*) FROM measurements").fetchone()

    team.run(BOB, leave_open)
    assert BOB in team.owners()
    refused = team.run(ALICE, write, 3)
    assert refused.startswith("refused: cannot write to database")
    assert "m.db-wal belongs to user 65002: remove it once nobody has the database open" in refused
    for end in ("-wal", "-shm"):
        team.path.with_name(f"m.db{end}").unlink()
    assert team.run(ALICE, write, 3) == "None"
