"""A database of an older schema loses nothing when it is opened, killed at any point or not."""

from __future__ import annotations

import math
import shutil
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.schema import VERSION

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800)
TRITON = Task(Problem(16, 4096, 4096), H200, "triton_mm")
ATEN = Task(TRITON.problem, H200, "aten")
TOOLCHAIN = Toolchain((("torch", "2.11.0"), ("triton", "3.6.0")))
OLDER = Toolchain((("torch", "2.11.0"), ("triton", "3.5.0")))
BEFORE, AFTER = DeviceState(1980, 3201, 41, 432_100), DeviceState(1755, 3201, 43, 698_000)


def stored(task, config, status=Status.OK, **more):
    facts = {"evidence": Evidence.MEASURED, "toolchain": TOOLCHAIN} | more
    return Measurement(
        task=task,
        config=Config(config),
        status=status,
        protocol="events-cold-l2",
        worker="host:0:4711",
        created_at="2026-11-21T10:00:00+00:00",
        **facts,
    )


HELD = [
    stored(
        ATEN,
        {},
        toolchain=Toolchain((("torch", "2.11.0"),)),
        samples_ns=(19300.5, 19200.0, 19800.25, 19250.0, 19400.0, 19100.0, 19500.0, 90000.0, 19350.0),
        estimate=Estimate(19350.0, 19200.0, 19800.25),  # nine samples: the second and the eighth
        before=BEFORE,
        after=AFTER,
    ),
    stored(
        TRITON,
        {"BLOCK_M": 16, "even": True},
        samples_ns=(17500.25, 17432.0, 17610.5, 17490.0),
        estimate=Estimate(17495.125, 17432.0, 17610.5),
        error_norm=1.25e-3,
        before=BEFORE,
        after=AFTER,
        resources=Resources(255, 196_608, 8, 128),
        build_seconds=0.47,
    ),
    stored(
        TRITON,
        {"BLOCK_M": 32, "even": True},
        evidence=Evidence.REPLAYED,
        samples_ns=(16500.0,),
        estimate=Estimate(16500.0, 16500.0, 16500.0),
    ),
    stored(
        TRITON,
        {"BLOCK_M": 16, "even": True},
        toolchain=OLDER,
        samples_ns=(17700.0, 17650.0),
        estimate=Estimate(17675.0, 17650.0, 17700.0),
    ),
    stored(
        TRITON,
        {"BLOCK_M": 64, "even": True},
        Status.WRONG_RESULT,
        reason="off by nan\nat [0, 1] ≠",
        error_norm=math.inf,
        before=BEFORE,
        build_seconds=0.5,
    ),
    stored(TRITON, {"BLOCK_M": 128, "even": True}, Status.INVALID, reason="shared memory 263168 B > 232448 B"),
    stored(TRITON, {"BLOCK_M": 16, "even": False}, Status.BUILD_FAILED, reason="ptxas: no"),
    stored(TRITON, {"BLOCK_M": 32, "even": False}, Status.RUN_FAILED, reason="run: illegal address"),
    stored(TRITON, {"BLOCK_M": 64, "even": False}, Status.TIMED_OUT, reason="run: 10 s passed"),
]
"""What v1.db holds, as later schemas know it; gemmtune wrote the file when its schema was 1."""

ADDMM = Task(Problem.parse("16x4096x4096:bf16:nt:addmm"), H200, "triton_mm")
HELD_BY_2 = [
    *HELD[:2],
    stored(
        ADDMM,
        {"BLOCK_M": 16, "even": True},
        Status.INVALID,
        reason="triton_mm renders a plain mm, not addmm",
    ),
]
FINAL = Final(
    finalists=(
        Finalist(
            TRITON,
            Config({"BLOCK_M": 16, "even": True, "order": "rows", "share": 0.5}),
            TOOLCHAIN,
            Estimate(17432.0, 17400.125, 0.1 + 0.2),
            (17500.25, 17432.0, 17390.5),
            (0.0, 0.0),
        ),
        Finalist(
            ATEN,
            Config({}),
            Toolchain((("torch", "2.11.0"),)),
            Estimate(17440.0, 17410.0, 17480.0),
            (17440.0,),
            (-0.0021, 0.0034),
        ),
    ),
    protocol="graph-cold-l2",
    worker="host/gpu0/pid4711",
    created_at="2026-11-21T10:00:00+00:00",
    failed=(FailedFinalist(TRITON, Config({"BLOCK_M": 64}), "off by 0.3\nat [0, 1] ≠"),),
)
"""What v2.db holds, with HELD_BY_2; gemmtune wrote the file when its schema was 2."""


@pytest.fixture
def old(tmp_path):
    return Path(shutil.copy(Path(__file__).with_name("v1.db"), tmp_path / "old.db"))


@pytest.fixture
def of_schema_2(tmp_path):
    return Path(shutil.copy(Path(__file__).with_name("v2.db"), tmp_path / "of_schema_2.db"))


def version(path):
    connection = sqlite3.connect(path)
    ((found,),) = connection.execute("SELECT version FROM schema_version").fetchall()
    connection.close()
    return found


def columns(path):
    connection = sqlite3.connect(path)
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    found = {  # name, not null, primary key; declared types differ in words alone
        name: [(row[1], row[3], row[5]) for row in connection.execute(f"PRAGMA table_info({name})")] for name in names
    }
    connection.close()
    return found


def test_everything_of_schema_1_reads_back_with_the_median_for_its_estimate(old):
    assert version(old) == 1
    with Database.open(old) as database:
        assert list(database.measurements()) == HELD
        assert database.known(TRITON, "events-cold-l2", Evidence.MEASURED, OLDER) == {HELD[3].config: HELD[3]}
        assert database.tasks() == (ATEN, TRITON)
        assert database.finals() == []
    assert version(old) == VERSION == 3
    with Database.open(old, create=False) as database:
        assert list(database.measurements()) == HELD


def test_everything_of_schema_2_reads_back_with_the_bias_that_its_operation_implies(of_schema_2):
    assert version(of_schema_2) == 2
    with Database.open(of_schema_2) as database:
        assert list(database.measurements()) == HELD_BY_2
        assert database.finals() == [FINAL]
    assert version(of_schema_2) == VERSION


def test_what_schema_2_measured_is_known_and_not_stored_again(of_schema_2):
    with Database.open(of_schema_2) as database:
        for held in HELD_BY_2:
            known = database.known(held.task, held.protocol, held.evidence, held.toolchain)
            assert known == {held.config: held}
        assert database.add(HELD_BY_2) == 0
        database.add_final(FINAL)
        assert database.finals() == [FINAL]


def test_an_upgraded_database_has_the_tables_of_a_new_one(old, of_schema_2, tmp_path):
    with Database.open(old), Database.open(of_schema_2), Database.open(tmp_path / "new.db"):
        assert columns(old) == columns(of_schema_2) == columns(tmp_path / "new.db")


def test_an_upgraded_database_takes_new_measurements_and_knows_the_old(old):
    new = stored(
        TRITON, {"BLOCK_M": 256}, samples_ns=(1.0,), estimate=Estimate(1.0, 1.0, 1.0), outliers=(0,), drift=1.5
    )
    with Database.open(old) as database:
        assert database.add([HELD[1], new]) == 1
        assert list(database.measurements()) == [*HELD, new]


def test_a_long_database_gets_every_estimate(old):
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("DELETE FROM measurements")
        connection.executemany(
            "INSERT INTO measurements (task_id, config_digest, protocol, evidence, toolchain_id, config, status,"
            " reason, samples_ns, worker, created_at) VALUES (1, ?, 'p', 'measured', 1, ?, ?, '', ?, 'w', '')",
            [
                (str(n), f'{{"n":{n}}}', "ok" if n % 3 else "run_failed", f"[{n}.5]" if n % 3 else "[]")
                for n in range(2500)
            ],
        )
    connection.close()
    with Database.open(old) as database:
        found = {m.config.integer("n"): m.estimate for m in database.measurements()}
    assert found == {n: Estimate(n + 0.5, n + 0.5, n + 0.5) if n % 3 else None for n in range(2500)}


def test_a_failed_upgrade_leaves_the_old_database_and_says_so(old):
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("CREATE TABLE finals (somebody_elses)")  # the second thing an upgrade makes
    connection.close()
    before = columns(old)
    with pytest.raises(StoreError, match=r"cannot upgrade database .*old\.db: table finals already exists"):
        Database.open(old)
    assert (version(old), columns(old)) == (1, before)


def test_a_database_that_must_not_be_written_is_not_upgraded(old):
    with pytest.raises(StoreError, match=r"cannot upgrade database .*: attempt to write a readonly database"):
        Database.open(f"sqlite:///file:{old}?mode=ro&uri=true")
    assert version(old) == 1


@pytest.mark.parametrize("strange", [0, -1, VERSION + 1])
def test_a_schema_this_gemmtune_does_not_know_is_refused(old, strange):
    connection = sqlite3.connect(old)
    with connection:
        connection.execute("UPDATE schema_version SET version = ?", (strange,))
    connection.close()
    with pytest.raises(
        StoreError, match=rf"has schema {strange}, this gemmtune knows schema {VERSION}; use the gemmtune"
    ):
        Database.open(old)
    assert version(old) == strange


KILLED = """
import os, signal, sys
from sqlalchemy import event
from sqlalchemy.engine import Engine
from gemmtune.engine.store.database import Database

def die(connection, cursor, statement, parameters, context, many):
    if statement.startswith(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)

event.listen(Engine, "after_cursor_execute", die)
Database.open(sys.argv[1])
"""


@pytest.mark.parametrize(
    "last", ["ALTER TABLE", "\nCREATE TABLE finals", "UPDATE measurements", "UPDATE tasks", "UPDATE schema_version"]
)
def test_an_upgrade_that_is_killed_leaves_schema_1_and_the_next_one_finishes(old, last):
    done = subprocess.run([sys.executable, "-P", "-c", KILLED, str(old), last], check=False)
    assert done.returncode == -signal.SIGKILL
    assert version(old) == 1
    assert "finals" not in columns(old)
    with Database.open(old) as database:
        assert list(database.measurements()) == HELD
    assert version(old) == VERSION


def test_processes_that_open_an_old_database_together_upgrade_it_once(old):
    program = "import sys; from gemmtune.engine.store.database import Database; Database.open(sys.argv[1]).close()"
    children = [subprocess.Popen([sys.executable, "-P", "-c", program, str(old)]) for _ in range(3)]
    assert [child.wait(timeout=60) for child in children] == [0, 0, 0]
    with Database.open(old) as database:
        assert list(database.measurements()) == HELD
