"""The database keeps everything it was given, through other processes, kills and bad files."""

from __future__ import annotations

import json
import math
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ProblemError, StoreError, ToolchainMissing, UsageError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.gemm.terms import DType, Layout
from gemmtune.engine.records.measurement import DeviceState, Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.schema import VERSION

pytestmark = pytest.mark.slow(8)

H200 = Device(
    "H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800, "a page"
)
TASK = Task(Problem(16, 4096, 4096), H200, "triton_mm")
OTHER = Task(Problem(2048, 4096, 4096), H200, "triton_mm")
TOOLCHAIN = Toolchain((("torch", "2.13.0+cu130"), ("triton", "3.6.0")))
STATE = DeviceState(1980, 3201, 41, 432_100, driver="580.95.05")


def measured(number: int, task: Task = TASK, **changes: object) -> Measurement:
    ok = Measurement(
        task=task,
        config=Config({"BLOCK_M": number, "split": True, "order": "rows", "share": 0.5}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="cold_l2",
        toolchain=TOOLCHAIN,
        worker="host:0:4711",
        created_at="2026-11-21T10:00:00Z",
        samples_ns=(17500.25, 17432.0, 0.1 + 0.2),
        estimate=Estimate(17449.5, 0.1 + 0.2, 17500.25),
        outliers=(2,),
        drift=1.0625,
        energy_joules=0.0117,
        error_norm=1.25e-3,
        before=STATE,
        after=replace(STATE, temperature_c=43, throttle_reasons=("hw_thermal_slowdown", "sw_power_cap")),
        resources=Resources(255, 196_608, 8, 128),
        build_seconds=0.47,
    )
    return replace(ok, **changes)


FAILED = measured(
    99,
    status=Status.WRONG_RESULT,
    reason="off by 0.3\nat [0, 1] ≠",
    samples_ns=(),
    estimate=None,
    outliers=(),
    drift=1.0,
    energy_joules=None,
    error_norm=math.inf,
    before=None,
    after=None,
    resources=None,
    build_seconds=None,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gemmtune.db"


@pytest.fixture
def database(path):
    with Database.open(path) as opened:
        yield opened


def test_every_field_of_every_measurement_reads_back_in_insertion_order(path):
    given_ = [measured(3), FAILED, measured(1, OTHER), measured(2)]
    with Database.open(path) as database:
        assert database.add(given_[:2]) == 2
        assert database.add(given_[2:]) == 2
    with Database.open(path) as database:
        assert list(database.measurements()) == given_
        assert list(database.measurements(TASK)) == [given_[0], given_[1], given_[3]]
        assert list(database.measurements(Task(Problem(1, 1, 1), H200, "aten"))) == []
        assert database.tasks() == (TASK, OTHER)


def test_a_norm_that_is_not_a_number_is_kept(path):
    with Database.open(path) as database:
        database.add([replace(FAILED, error_norm=math.nan)])
        (back,) = database.measurements()
    assert back.error_norm is not None
    assert math.isnan(back.error_norm)


def test_a_reason_that_is_no_text_is_kept_as_escapes(path):
    with Database.open(path) as database:
        database.add([replace(FAILED, reason="bad \udcff and \0")])
        (back,) = database.measurements()
    assert back.reason == r"bad \udcff and \x00"


def test_the_reason_screening_stopped_is_kept_and_older_rows_have_none(path):
    stopped = measured(1, estimate=Estimate(3.0, 2.0, 4.0, stopped="one launch took 6.1 times the leader's"))
    with Database.open(path) as database:
        database.add([stopped, measured(2)])
        assert list(database.measurements()) == [stopped, measured(2)]
    with sqlite3.connect(path) as connection:
        kept = [set(json.loads(text)) for (text,) in connection.execute("SELECT estimate FROM measurements")]
    connection.close()
    times = {"time_ns", "low_ns", "high_ns"}
    assert kept == [times | {"stopped"}, times]  # the second is what was written before there was any


SIZES = st.integers(1, 2**31 - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
FINITE = st.floats(0, 1e300)
STATES = st.none() | st.builds(
    DeviceState, *[st.none() | st.integers(0, 10**6)] * 4, st.lists(TEXTS, max_size=2).map(tuple)
)
TASKS = st.builds(
    Task,
    problem=st.builds(
        Problem,
        SIZES,
        SIZES,
        SIZES,
        a_dtype=st.sampled_from([d for d in DType if not d.is_integer]),
        b_layout=st.sampled_from(Layout),
    ),
    device=st.builds(replace, st.just(H200), sku=TEXTS, sm_count=st.integers(1, 200)),
    space=TEXTS,
)
CONFIGS = st.dictionaries(
    TEXTS, st.integers(-(2**70), 2**70) | st.floats(allow_nan=False) | st.booleans() | TEXTS, max_size=4
).map(Config)
ESTIMATES = st.lists(st.floats(1e-9, 1e300), min_size=3, max_size=3).map(
    lambda three: Estimate(sorted(three)[1], min(three), max(three))
)
OUTCOMES = st.tuples(st.just(Status.OK), ESTIMATES) | st.tuples(st.sampled_from(list(Status)[1:]), st.none())
MEASUREMENTS = st.builds(
    lambda outcome, **fields: Measurement(status=outcome[0], estimate=outcome[1], **fields),
    outcome=OUTCOMES,
    task=TASKS,
    config=CONFIGS,
    evidence=st.sampled_from(Evidence),
    protocol=TEXTS,
    toolchain=st.builds(Toolchain, st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)),
    worker=TEXTS,
    created_at=TEXTS,
    reason=TEXTS,
    samples_ns=st.lists(FINITE, min_size=1, max_size=4).map(tuple),
    outliers=st.lists(st.integers(0, 511), max_size=3).map(tuple),
    drift=FINITE,
    energy_joules=st.none() | FINITE,
    error_norm=st.none() | FINITE,
    before=STATES,
    after=STATES,
    resources=st.none() | st.builds(Resources, *[st.integers(0, 10**6)] * 4),
    build_seconds=st.none() | FINITE,
)


def identity(measurement: Measurement) -> tuple[object, ...]:
    m = measurement
    return m.task, m.config, m.protocol, m.evidence, m.toolchain


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a loaded machine
@given(batch=st.lists(MEASUREMENTS, max_size=4, unique_by=identity))
def test_any_batch_reads_back_equal(batch):
    with Database.open("sqlite://") as database:
        assert database.add(batch) == len(batch)
        assert list(database.measurements()) == batch
        for measurement in batch:
            known = database.known(measurement.task, measurement.protocol, measurement.evidence, measurement.toolchain)
            assert known[measurement.config] == measurement


def test_known_is_what_the_same_protocol_evidence_and_toolchain_measured(path):
    newer = Toolchain((("torch", "2.13.0+cu130"), ("triton", "3.7.0")))
    same = [measured(2), FAILED, measured(1)]
    others = [
        measured(4, OTHER),
        measured(4, protocol="energy"),
        measured(4, evidence=Evidence.REPLAYED),
        measured(4, toolchain=newer),
        measured(4, replace(TASK, device=replace(H200, sm_count=114))),
    ]
    with Database.open(path) as database:
        database.add([*others, *same])
        known = database.known(TASK, "cold_l2", Evidence.MEASURED, TOOLCHAIN)
        assert list(known.items()) == [(measurement.config, measurement) for measurement in same]
        terms = TASK, "cold_l2", Evidence.MEASURED
        some = list(known)[1:3]
        digests = ["0" * 16, *(config.digest for config in some)]
        assert database.known(*terms, TOOLCHAIN, digests) == {config: known[config] for config in some}
        assert database.known(*terms, Toolchain(())) == database.known(*terms, Toolchain(()), digests) == {}
        assert database.known(replace(TASK, space="aten"), "cold_l2", Evidence.MEASURED, TOOLCHAIN) == {}


def test_a_weight_and_a_source_do_not_make_another_task(path):
    heavy = Task(replace(TASK.problem, weight=7.0), replace(H200, source="another page"), "triton_mm")
    with Database.open(path) as database:
        database.add([measured(1), measured(2, heavy)])
        assert database.tasks() == (TASK,)
        assert len(database.known(heavy, "cold_l2", Evidence.MEASURED, TOOLCHAIN)) == 2


def test_the_first_measurement_of_a_config_stays(path):
    again = measured(1, samples_ns=(1.0,), worker="host:1:42")
    with Database.open(path) as database:
        assert database.add([measured(1)]) == 1
        assert database.add([again, measured(2), replace(again, config=measured(2).config)]) == 1
        assert list(database.measurements()) == [measured(1), measured(2)]


def test_schema_3_has_these_columns(path):
    Database.open(path).close()
    with sqlite3.connect(path) as connection:
        tables = ("schema_version", "tasks", "toolchains", "measurements", "finals")
        columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info({name})")] for name in tables}
    connection.close()
    assert VERSION == 3
    assert columns == {
        "schema_version": ["version"],
        "tasks": ["id", "key", "space", "problem", "device", "digest"],
        "toolchains": ["id", "versions", "digest"],
        "measurements": [
            *("id", "task_id", "config_digest", "protocol", "evidence", "toolchain_id", "config", "status", "reason"),
            *("samples_ns", "error_norm", "before", "after", "resources", "build_seconds", "worker", "created_at"),
            *("estimate", "outliers", "drift", "energy_joules", "digest"),
        ],
        "finals": ["id", "problem", "device", "protocol", "worker", "created_at", "content", "digest"],
    }


def at(number: int, time_ns: float, task: Task = TASK, **changes: object) -> Measurement:
    return measured(number, task, estimate=Estimate(time_ns, time_ns, time_ns), **changes)


ATEN = replace(TASK, space="aten")
H100 = replace(TASK, device=replace(H200, sku="H100"))


def test_best_is_the_fastest_ok_measurement_of_the_problem(database):
    database.add([FAILED, at(1, 90.0), at(2, 100.0), at(3, 85.0, ATEN), at(4, 80.0, H100), at(5, 10.0, OTHER)])
    database.add([at(6, 1.0, status=Status.RUN_FAILED)])
    assert database.best(TASK.problem) == at(4, 80.0, H100)
    assert database.best("16x4096x4096:bf16:nt", device="H200") == at(3, 85.0, ATEN)
    assert database.best(TASK.problem, space="triton_mm", device="H200") == at(1, 90.0)
    assert database.best(OTHER.problem) == at(5, 10.0, OTHER)
    assert database.best("1x1x1") is database.best(TASK.problem, space="quack_gemm") is None
    assert database.best(TASK.problem, device="B200") is None
    with pytest.raises(ProblemError, match="malformed problem"):
        database.best("16 by 4096")


def test_best_prefers_measured_times_to_faster_replayed_and_estimated_ones(database):
    database.add([at(1, 30.0, evidence=Evidence.ESTIMATED)])
    assert database.best(TASK.problem).evidence is Evidence.ESTIMATED
    database.add([at(2, 40.0, evidence=Evidence.REPLAYED)])
    assert database.best(TASK.problem).evidence is Evidence.REPLAYED
    database.add([at(3, 50.0)])
    assert database.best(TASK.problem) == at(3, 50.0)


def test_best_does_not_compare_times_of_several_protocols(database):
    warm = at(2, 50.0, protocol="warm_l2")
    database.add([at(1, 90.0), warm])
    with pytest.raises(UsageError, match=r"several protocols: choose protocol= from cold_l2, warm_l2"):
        database.best(TASK.problem)
    assert database.best(TASK.problem, protocol="cold_l2") == at(1, 90.0)
    assert database.best(TASK.problem, protocol="warm_l2") == warm
    assert database.best(TASK.problem, protocol="energy") is None


def test_measurements_are_chosen_by_problem_space_and_device(database):
    held = [measured(1), measured(2, ATEN), FAILED, measured(3, OTHER), measured(4, H100)]
    database.add(held)
    assert len(database) == len(held)
    assert list(database.measurements("16x4096x4096:bf16:nt")) == [held[0], held[1], held[2], held[4]]
    assert list(database.measurements(OTHER.problem)) == [held[3]]
    assert list(database.measurements(TASK.problem, space="triton_mm", device="H200")) == [held[0], held[2]]
    assert list(database.measurements(space="aten")) == [held[1]]
    assert list(database.measurements(device="H100")) == [held[4]]
    with pytest.raises(ProblemError, match="malformed problem"):
        database.measurements("16 by 4096")


def test_a_dataframe_has_a_row_for_each_measurement_and_a_column_for_each_parameter(database):
    pytest.importorskip("pandas")
    database.add([measured(16), FAILED, measured(32, OTHER)])
    frame = database.to_dataframe()
    assert list(frame["config.BLOCK_M"]) == [16, 99, 32]
    assert frame["config.BLOCK_M"].dtype == frame["build.registers"].dtype == "Int64"
    assert list(frame["status"]) == ["ok", "wrong_result", "ok"]
    assert frame["time_ns"].isna().tolist() == [False, True, False]
    assert frame.groupby("problem")["time_ns"].min().to_dict() == dict.fromkeys(
        (TASK.problem.name, OTHER.problem.name), 17449.5
    )
    assert len(database.to_dataframe(OTHER.problem)) == 1


def test_without_pandas_a_dataframe_is_refused_with_the_extra_that_brings_it(database, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ToolchainMissing, match=r"pip install .*\[study\]"):
        database.to_dataframe()


def test_an_empty_database_is_true(database):
    assert len(database) == 0
    assert database


def test_a_batch_larger_than_a_statement_is_stored_and_read_whole(path):
    batch = [measured(number) for number in range(2500)]
    with Database.open(path) as database:
        assert database.add(batch) == 2500
        assert database.add(batch) == 0
        assert list(database.measurements()) == batch


def test_measurements_can_be_added_while_they_are_read(path):
    with Database.open(path) as database:
        database.add([measured(1)])
        seen = database.measurements()
        assert next(seen) == measured(1)
        database.add([measured(2)])
        assert list(seen) == [measured(2)]


def test_a_batch_that_fails_leaves_nothing_and_the_next_one_works(path):
    with Database.open(path) as database:
        with pytest.raises(StoreError, match="cannot write to database"):
            database.add([measured(1), measured(2, OTHER, worker=None)])
        assert list(database.measurements()) == []
        assert database.tasks() == ()
        assert database.add([measured(2, OTHER), measured(1)]) == 2
        assert database.tasks() == (OTHER, TASK)


def test_an_empty_batch_is_no_error(path):
    with Database.open(path) as database:
        assert database.add([]) == 0


def test_a_path_and_its_url_are_one_database(path):
    with Database.open(str(path)) as database:
        database.add([measured(1)])
    with Database.open(f"sqlite:///{path}") as database:
        assert list(database.measurements()) == [measured(1)]


@pytest.mark.parametrize("version", [-1, 0, VERSION - 1, VERSION + 1])
def test_another_schema_is_refused_and_nothing_is_written(path, version):
    with Database.open(path) as database:
        database.add([measured(1)])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = ?", (version,))
    connection.close()
    before = path.read_bytes()
    known = rf"gemmtune\.db has schema {version}, this gemmtune knows schema {VERSION};"
    with pytest.raises(StoreError, match=f"{known} use the gemmtune that wrote it, or another database"):
        Database.open(path)
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_a_file_that_is_no_database_is_refused_and_kept(path):
    path.write_text("problem.m,problem.n\n" * 100)
    with pytest.raises(StoreError, match=r"cannot open database .*gemmtune\.db: file is not a database"):
        Database.open(path)
    assert path.read_text() == "problem.m,problem.n\n" * 100


def test_a_database_of_something_else_is_refused_and_kept(path):
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE songs (title)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=r"something else \(songs, \.\.\.\)"):
        Database.open(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("table", ["tasks", "toolchains", "measurements", "finals"])
@pytest.mark.parametrize("part", ["id INTEGER NOT NULL", "PRIMARY KEY (id)"])
def test_a_table_without_its_ids_is_refused_before_it_is_read(path, table, part):
    Database.open(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA writable_schema=ON")
        cut = "id INTEGER" if "NOT" in part else "UNIQUE (id)"
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ?, ?) WHERE name = ?", (part, cut, table))
    for read_only in (True, False):
        with pytest.raises(StoreError, match=f"is damaged: table {table} has lost its ids; restore a copy of it"):
            Database.open(path, read_only=read_only)


@pytest.mark.parametrize("name", ["nowhere/gemmtune.db", "file/gemmtune.db"])
def test_a_path_that_cannot_hold_a_database_is_refused(tmp_path, name):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="its folder must exist and be writable"):
        Database.open(tmp_path / name)


@pytest.mark.parametrize("url", ["nosuch://host/name", "sqlite+nosuch:///x", "://"])
def test_a_url_no_driver_serves_is_refused(url):
    with pytest.raises(StoreError, match=f"cannot open database {url.replace('+', '.')}"):
        Database.open(url)


def test_a_password_is_not_shown():
    with pytest.raises(StoreError) as caught:
        Database.open("postgresql+nosuch://user:secret@host/name")
    assert "secret" not in str(caught.value)


def test_a_missing_or_empty_database_is_not_read(path):
    with pytest.raises(StoreError, match=r"no file or folder .*gemmtune\.db"):
        Database.open(path, read_only=True)
    assert not path.exists()
    path.touch()
    with pytest.raises(StoreError, match="is empty"):
        Database.open(path, read_only=True)


@pytest.mark.parametrize("read_only", [True, False])
def test_a_folder_is_refused_with_the_file_to_name(tmp_path, read_only):
    with pytest.raises(StoreError, match="is an empty folder; a database is wanted"):
        Database.open(tmp_path, read_only=read_only)


BATCH = 16
ADDER = f"""
import sys
from dataclasses import replace
from pathlib import Path
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database

path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
print("begin", flush=True)
device = Device("H200", "NVIDIA H200", "sm_90a", 132, 1, 1, 1, 1, 1, 1, 32, 1, 1)
with Database.open(path) as database:
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


def adder(path, first, last):
    command = [sys.executable, "-P", "-c", ADDER, str(path), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def members_by_batch(path) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    with Database.open(path) as database:
        for measurement in database.measurements():
            found.setdefault(measurement.config.integer("batch"), []).append(measurement.config.integer("member"))
    return found


def test_kill_9_at_any_instant_loses_nothing_committed_and_keeps_batches_whole(path):
    chance = random.Random(20261121)
    reported: set[int] = set()
    first = 0
    for round_ in range(5):
        with adder(path, first, 10**9) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == "begin\n"
            # The first rounds hit the making of the file and its tables, the others the adding.
            lines = [child.stdout.readline() for _ in range(0 if round_ < 2 else 18)]
            time.sleep(chance.uniform(0, 0.05))
            child.send_signal(signal.SIGKILL)
            lines += child.stdout.read().splitlines(keepends=True)
            reported |= {int(line) for line in lines if line.endswith("\n")}
        assert child.returncode == -signal.SIGKILL
        found = members_by_batch(path)
        assert reported <= set(found)
        assert all(members == list(range(BATCH)) for members in found.values())
        first = max(found, default=-1) + 1
    assert len(reported) > 50
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


def test_processes_that_create_one_database_together_lose_nothing(path):
    ranges = [(0, 20), (10, 30), (20, 40)]
    children = [adder(path, first, last) for first, last in ranges]
    assert [child.communicate(timeout=60)[0].count("\n") for child in children] == [21, 21, 21]
    assert [child.returncode for child in children] == [0, 0, 0]
    found = members_by_batch(path)
    assert sorted(found) == list(range(40))
    assert all(sorted(members) == list(range(BATCH)) for members in found.values())


def test_a_locked_database_is_waited_for_with_one_word(tmp_path):
    path, notices = tmp_path / "m.db", []
    with Database.open(path) as database, closing(sqlite3.connect(path, check_same_thread=False)) as other:
        database.send_notices_to(notices.append)
        other.execute("BEGIN IMMEDIATE")
        released = threading.Timer(2.2, other.rollback)  # two refusals, of which the second is not told
        released.start()
        assert database.add([measured(1)]) == 1
        released.join()
        assert notices == [f"waiting for the database sqlite:///{path}: another process has locked it"]
        assert list(database.measurements()) == [measured(1)]


def test_a_database_that_stays_locked_is_an_error_with_the_way_out(tmp_path):
    path = tmp_path / "m.db"
    with Database.open(path, patience_seconds=0.1) as database, closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"has had database .* locked for \d+ s; end it, then run"):
            database.add([measured(1)])
        other.rollback()
        assert database.add([measured(1)]) == 1


def test_a_new_database_that_another_process_is_making_is_waited_for(tmp_path, caplog):
    path = tmp_path / "m.db"
    with closing(sqlite3.connect(path, check_same_thread=False)) as other:
        other.execute("BEGIN EXCLUSIVE")

        def release_once_said():
            until = time.monotonic() + 60
            while not caplog.records and time.monotonic() < until:
                time.sleep(0.02)
            other.rollback()

        releasing = threading.Thread(target=release_once_said)
        releasing.start()
        with Database.open(path) as database:
            assert database.add([measured(1)]) == 1
        releasing.join()
    assert [record.message[:24] for record in caplog.records] == ["waiting for the database"]


HELD = {
    "deleted": (lambda path, other: [file.unlink() for file in path.parent.glob(f"{path.name}*")], "deleted or moved"),
    "without its log": (lambda path, other: Path(f"{path}-wal").unlink(), r"its log \(-wal\) was deleted"),
    "replaced": (lambda path, other: other.replace(path), "replaced by another file"),
}


def hold(path, first, act, last=()):
    """Store measurements, do something to the file, and store others."""
    with Database.open(path) as database:
        assert database.add([measured(number) for number in first]) == len(first)
        act()
        database.add([measured(number) for number in last])


@pytest.mark.parametrize("last", [(), (3,)])
@pytest.mark.parametrize(("act", "said"), HELD.values(), ids=HELD)
def test_a_file_that_is_taken_away_is_missed_and_what_it_held_is_rescued(tmp_path, act, said, last):
    path, other = tmp_path / "measurements.db", tmp_path / "other.db"
    Database.open(other).close()
    with pytest.raises(StoreError, match=said) as missed:
        hold(path, (1, 2), lambda: act(path, other), last)
    assert ("no results are written" if last else "the results that were written stay") in str(missed.value)
    (rescued,) = tmp_path.glob("rescued-*.db")
    assert f"gemmtune campaigns {path} merge {rescued}" in str(missed.value)
    with Database.open(rescued, read_only=True) as database:
        assert len(database) == 2 + len(last)


def test_a_folder_that_is_moved_away_is_missed(tmp_path):
    folder, moved = tmp_path / "out", tmp_path / "moved"
    folder.mkdir()
    with pytest.raises(StoreError, match=r"deleted or moved .* is lost unless it was moved"):
        hold(folder / "measurements.db", (1,), lambda: folder.rename(moved), (2,))
    with Database.open(moved / "measurements.db") as database:
        assert len(database) == 2


@pytest.mark.parametrize("content", [b"", b"\0" * 8192, b"overwritten" * 10_000])
def test_a_file_that_is_written_over_is_no_success(tmp_path, content):
    path = tmp_path / "measurements.db"
    hold(path, range(300), list)
    with pytest.raises(StoreError, match=r"is lost: (its file is damaged|it was emptied)|cannot read"):
        hold(path, (300,), lambda: path.write_bytes(content))


def test_a_file_that_others_write_to_and_leave_is_as_it_was(tmp_path):
    path = tmp_path / "measurements.db"
    with Database.open(path) as database:
        database.add([measured(1)])
        with Database.open(path) as other:
            other.add([measured(2)])
        with closing(sqlite3.connect(path)) as another:
            another.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        database.add([measured(3)])
        assert len(database) == 3
