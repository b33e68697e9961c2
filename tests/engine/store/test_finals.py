"""The database keeps every final, whole and in order."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database

H200 = Device(
    "H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800, "a page"
)
PROBLEM = Problem(16, 4096, 4096)
TRITON, ATEN = Task(PROBLEM, H200, "triton_mm"), Task(PROBLEM, H200, "aten")
FINAL = Final(
    finalists=(
        Finalist(
            TRITON,
            Config({"BLOCK_M": 16, "even": True, "order": "rows", "share": 0.5}),
            Toolchain((("torch", "2.11.0"), ("triton", "3.6.0"))),
            Estimate(17432.0, 17400.125, 17464.1 + 0.2),
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


def of(final, problem=PROBLEM, device=H200):
    """Return the final with another problem and device."""
    moved = {out.task.space: Task(problem, device, out.task.space) for out in final.finalists}
    return replace(
        final,
        finalists=tuple(replace(f, task=moved[f.task.space]) for f in final.finalists),
        failed=tuple(replace(out, task=moved[out.task.space]) for out in final.failed),
    )


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gemmtune.db"


def test_every_field_of_every_final_reads_back(path):
    other = replace(FINAL, finalists=FINAL.finalists[:1], failed=())
    with Database.open(path) as database:
        database.add_final(FINAL)
        database.add_final(other)
    with Database.open(path) as database:
        assert database.finals() == [FINAL, other]
        assert database.finals()[0].regret_bound == 0.0021


def test_a_final_added_twice_is_stored_once(path):
    with Database.open(path) as database:
        finals = (FINAL, FINAL, replace(FINAL, worker="another host"))
        assert [database.add_final(final) for final in finals] == [True, False, True]
        assert database.finals() == [FINAL, replace(FINAL, worker="another host")]


def test_finals_are_in_order_of_time_and_then_of_insertion(path):
    first, last = (replace(FINAL, created_at=f"2026-11-{day}T10:00:00+00:00") for day in (20, 22))
    second = replace(first, worker="another host")
    with Database.open(path) as database:
        for final in (last, first, FINAL, second):
            database.add_final(final)
        assert database.finals() == [first, second, FINAL, last]


def test_finals_are_found_by_problem_device_and_protocol(path):
    other = of(FINAL, Problem(32, 4096, 4096))
    elsewhere = of(FINAL, device=replace(H200, sm_count=114))
    warm = replace(FINAL, protocol="graph-warm-l2")
    with Database.open(path) as database:
        for final in (FINAL, other, elsewhere, warm):
            database.add_final(final)
        assert database.finals(PROBLEM, H200, "graph-cold-l2") == [FINAL]
        assert database.finals(other.problem, H200, "graph-cold-l2") == [other]
        assert database.finals(PROBLEM, elsewhere.device, "graph-cold-l2") == [elsewhere]
        assert database.finals(PROBLEM, H200) == [FINAL, warm]
        assert database.finals(protocol="graph-warm-l2") == [warm]
        assert database.finals(Problem(1, 1, 1), H200, "graph-cold-l2") == []


def test_a_weight_and_a_source_do_not_make_another_problem(path):
    with Database.open(path) as database:
        database.add_final(of(FINAL, replace(PROBLEM, weight=3.0), replace(H200, source="another page")))
        assert database.finals(PROBLEM, H200, "graph-cold-l2") == [FINAL]


def test_a_reason_that_is_no_text_is_kept_as_escapes(path):
    with Database.open(path) as database:
        stopped = replace(FINAL.finalists[0], estimate=replace(FINAL.finalists[0].estimate, stopped="no \0"))
        failed = replace(FINAL.failed[0], reason="bad \udcff and \0")
        database.add_final(replace(FINAL, finalists=(stopped,), failed=(failed,)))
        (back,) = database.finals()
    assert back.failed[0].reason == r"bad \udcff and \x00"
    assert back.finalists[0].estimate.stopped == r"no \x00"


def test_a_final_the_database_refuses_leaves_nothing(path):
    with Database.open(path) as database:
        with pytest.raises(StoreError, match="cannot write to database"):
            database.add_final(replace(FINAL, worker=None))
        assert database.finals() == []


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
NUMBERS = st.floats(-1e300, 1e300)
TIMES = st.lists(st.floats(1e-9, 1e300), min_size=3, max_size=3).map(sorted)
CONFIGS = st.dictionaries(TEXTS, st.integers(-(2**70), 2**70) | NUMBERS | st.booleans() | TEXTS, max_size=4).map(Config)
TASKS = st.builds(Task, st.just(PROBLEM), st.just(H200), TEXTS)
FINALISTS = st.builds(
    Finalist,
    TASKS,
    CONFIGS,
    st.builds(Toolchain, st.lists(st.tuples(TEXTS, TEXTS), max_size=3).map(tuple)),
    TIMES.map(lambda times: Estimate(times[1], times[0], times[2])),
    st.lists(NUMBERS, max_size=4).map(tuple),
    st.lists(st.floats(allow_nan=False), min_size=2, max_size=2).map(lambda ends: tuple(sorted(ends))),
)
FINALS = st.builds(
    Final,
    st.lists(FINALISTS, min_size=1, max_size=3).map(tuple),
    TEXTS,
    TEXTS,
    TEXTS,
    st.lists(st.builds(FailedFinalist, TASKS, CONFIGS, TEXTS), max_size=2).map(tuple),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a loaded machine
@given(finals=st.lists(FINALS, max_size=3, unique_by=repr))
def test_any_final_reads_back_equal(finals):
    with Database.open("sqlite://") as database:
        for final in finals:
            database.add_final(final)
        by_time = sorted(finals, key=lambda final: final.created_at.encode())
        assert database.finals() == by_time
        assert database.finals(PROBLEM, H200) == by_time


def test_an_interval_without_an_upper_end_is_kept(path):
    open_ended = replace(FINAL.finalists[1], behind=(-0.01, math.inf))
    with Database.open(path) as database:
        database.add_final(replace(FINAL, finalists=(FINAL.finalists[0], open_ended)))
        assert database.finals()[0].finalists[1].behind == (-0.01, math.inf)


def test_finals_without_a_run_length_read_as_single_launches(path):
    in_runs = replace(FINAL, finalists=tuple(replace(finalist, run=8) for finalist in FINAL.finalists))
    with Database.open(path) as database:
        database.add_final(in_runs)
        assert database.finals() == [in_runs]
    with closing(sqlite3.connect(path)) as connection, connection:
        (content,) = connection.execute("SELECT content FROM finals").fetchone()
        assert content.count('"run":8') == 2
        connection.execute("UPDATE finals SET digest = NULL, content = ?", (content.replace(',"run":8', ""),))
    with Database.open(path) as database:
        assert database.finals() == [FINAL]
