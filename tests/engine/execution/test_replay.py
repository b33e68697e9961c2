"""The replay executor answers with what was recorded, and says so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.execution.replay import LandscapeIndex, ReplayExecutor
from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ContractError, LandscapeError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800)
TASK = Task(Problem(16, 4096, 4096), H200, "toy")
BARE = Task(Problem(32, 4096, 4096), H200, "toy")
CONTEXT = 'toy,H200,cold_l2,2026-11-21T10:00:00Z,"torch 2.13.0, triton 3.6.0"'
RECORDED = f"""\
problem.m,problem.n,problem.k,task.space,task.device,task.protocol,task.date,task.toolchain,x,time_us,times_us,status,\
build.registers,build.shared_bytes,build.spill_bytes,build.threads,build.seconds
16,4096,4096,{CONTEXT},1,15.8,15.7;15.9,ok,128,4096,0,64,0.4
16,4096,4096,{CONTEXT},2,16.5,,ok,,,,,
16,4096,4096,{CONTEXT},3,,,timed_out: 10 s,,,,,
16,4096,4096,{CONTEXT},4,,,invalid: too big,,,,,
32,4096,4096,,,,,,1,9.0,,ok,,,,,
"""


@pytest.fixture
def landscapes(tmp_path):
    path = tmp_path / "h200.csv"
    path.write_text(RECORDED)
    return read_landscapes(path)


@pytest.fixture
def executor(landscapes) -> Executor:
    return ReplayExecutor(landscapes)


def answer(executor: Executor, x: int, task: Task = TASK) -> Measurement:
    executor.submit(task, Config({"x": x}))
    (measurement,) = executor.collect(0.0)
    assert isinstance(measurement, Measurement)
    return measurement


def test_a_recorded_config_is_answered_with_all_that_was_recorded(executor):
    assert answer(executor, 1) == Measurement(
        task=TASK,
        config=Config({"x": 1}),
        status=Status.OK,
        evidence=Evidence.REPLAYED,
        protocol="cold_l2",
        toolchain=Toolchain((("torch", "2.13.0"), ("triton", "3.6.0"))),
        worker="replay:h200.csv",
        created_at="2026-11-21T10:00:00Z",
        samples_ns=(15700.0, 15900.0),
        estimate=Estimate(15800.0, 15700.0, 15900.0),
        resources=Resources(128, 4096, 0, 64),
        build_seconds=0.4,
    )


def test_a_time_without_launches_is_one_sample(executor):
    assert answer(executor, 2).samples_ns == (16500.0,)
    assert answer(executor, 2).estimate == Estimate(16500.0, 16500.0, 16500.0)


def test_the_recorded_time_stands_and_its_interval_holds_it(tmp_path):
    launches = ";".join(f"{time}" for time in (20, 21, 22, 23, 24, 25))
    rows = "".join(f"16,4096,4096,{x},{time},{launches},ok\n" for x, time in ((1, 22.25), (2, 19.5), (3, 25.5)))
    path = tmp_path / "corrected.csv"
    path.write_text(f"problem.m,problem.n,problem.k,x,time_us,times_us,status\n{rows}")
    executor = ReplayExecutor(read_landscapes(path))
    assert [answer(executor, x).estimate for x in (1, 2, 3)] == [
        Estimate(22250.0, 20000.0, 25000.0),
        Estimate(19500.0, 19500.0, 25000.0),
        Estimate(25500.0, 20000.0, 25500.0),
    ]


def test_a_recorded_failure_is_answered_with_its_reason(executor):
    failed = answer(executor, 3)
    assert (failed.status, failed.reason, failed.samples_ns) == (Status.TIMED_OUT, "10 s", ())
    assert failed.estimate is None


def test_a_replay_holds_no_final(executor):
    assert not executor.holds_finals
    with pytest.raises(ContractError, match="ReplayExecutor was asked for a final"):
        executor.hold_final([(TASK, Config({"x": 1})), (TASK, Config({"x": 2}))])


def test_a_config_that_was_not_recorded_is_invalid_and_says_so(executor):
    missing = answer(executor, 77)
    assert missing.status is Status.INVALID
    assert missing.reason == "not in the recorded landscape h200.csv"
    assert (missing.samples_ns, missing.estimate) == ((), None)


def test_a_file_that_says_little_gives_empty_context(executor):
    bare = answer(executor, 1, BARE)
    assert (bare.protocol, bare.toolchain, bare.created_at) == ("", Toolchain(()), "")
    assert bare.samples_ns == (9000.0,)


def test_a_database_is_asked_with_what_the_measurements_say(executor, tmp_path):
    measurement = answer(executor, 1)
    with Database.open(tmp_path / "gemmtune.db") as database:
        database.add([measurement])
        known = database.known(TASK, executor.protocol(TASK), executor.evidence, executor.toolchain(TASK))
    assert known == {measurement.config: measurement}


def test_each_submission_is_collected_once_and_nothing_makes_it_wait(executor):
    for x in (2, 1, 2):
        executor.submit(TASK, Config({"x": x}))
    assert [measurement.config.integer("x") for measurement in executor.collect(3600.0)] == [2, 1, 2]
    assert executor.collect(3600.0) == []
    executor.submit(TASK, Config({"x": 1}))
    executor.close()
    assert executor.collect(3600.0) == []


def test_a_task_that_was_not_recorded_is_refused_with_those_that_were(executor):
    for task in (
        Task(Problem(17, 4096, 4096), H200, "toy"),
        Task(TASK.problem, H200, "another"),
        Task(TASK.problem, replace(H200, sku="H100"), "toy"),
    ):
        with pytest.raises(LandscapeError, match=r"no recorded landscape of .*H200/toy/16x4096x4096:bf16:nt"):
            executor.submit(task, Config({"x": 1}))


def test_a_malformed_toolchain_is_refused_with_its_file(tmp_path):
    path = tmp_path / "odd.csv"
    path.write_text("problem.m,problem.n,problem.k,task.toolchain,x,time_us,status\n16,4096,4096,torch,1,2,ok\n")
    with pytest.raises(LandscapeError, match=r"odd\.csv: task\.toolchain 'torch'"):
        ReplayExecutor(read_landscapes(path)).toolchain(TASK)


def test_the_first_landscape_of_a_task_answers(landscapes):
    again = [replace(landscape) for landscape in landscapes]
    index = LandscapeIndex([*landscapes, *again])
    assert index.of(TASK) is landscapes[0]
    assert index.of(BARE) is landscapes[1]
