"""Damaged, foreign and read-only databases: a right answer or one line, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.catalogue import device
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError, StoreError
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database

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
