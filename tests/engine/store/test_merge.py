"""Databases of several sites become one, and nothing of any is lost or counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import Merged, merge

H200 = Device("H200", "NVIDIA H200", "sm_90a", 132, 232448, 233472, 60 << 20, 65536, 2048, 1024, 32, 1980, 4800)
TASK, OTHER = Task(Problem(16, 4096, 4096), H200, "triton_mm"), Task(Problem(32, 4096, 4096), H200, "triton_mm")
TOOLCHAIN = Toolchain((("torch", "2.13.0"), ("triton", "3.6.0")))


def measured(number: int, task: Task = TASK, worker: str = "here/gpu0") -> Measurement:
    return Measurement(
        task=task,
        config=Config({"BLOCK_M": number}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol="graph-cold-l2",
        toolchain=TOOLCHAIN,
        worker=worker,
        created_at="2026-11-21T10:00:00+00:00",
        samples_ns=(float(number),),
        estimate=Estimate(float(number), float(number), float(number)),
    )


def final(day: int, worker: str = "here/gpu0") -> Final:
    leader = Finalist(TASK, Config({"BLOCK_M": day}), TOOLCHAIN, Estimate(1.0, 1.0, 1.0), (1.0,), (0.0, 0.0))
    return Final((leader,), "graph-cold-l2", worker, f"2026-11-{day}T10:00:00+00:00")


@pytest.fixture
def here(tmp_path):
    with Database.open(tmp_path / "here.db") as database:
        database.add([measured(1), measured(2)])
        database.add_final(final(20))
        yield database


@pytest.fixture
def there(tmp_path):
    with Database.open(tmp_path / "there.db") as database:
        database.add([measured(5, OTHER, "there/gpu0"), measured(2, worker="there/gpu0"), measured(3, worker="there")])
        database.add_final(final(19, "there"))
        database.add_final(final(21, "there"))
        yield database


def test_own_measurements_stay_and_new_ones_are_added_in_their_order(here, there):
    before = list(there.measurements()), there.finals()
    assert merge(here, there) == Merged(measurements=3, new=2, finals=2, new_finals=2)
    assert list(here.measurements()) == [
        measured(1),
        measured(2),
        measured(5, OTHER, "there/gpu0"),
        measured(3, worker="there"),
    ]
    assert here.finals() == [final(19, "there"), final(20), final(21, "there")]
    assert (list(there.measurements()), there.finals()) == before


def test_merging_again_or_with_itself_changes_nothing(here, there):
    merge(here, there)
    held = list(here.measurements()), here.finals()
    assert merge(here, there) == Merged(3, 0, 2, 0)
    assert merge(here, here) == Merged(4, 0, 3, 0)
    assert (list(here.measurements()), here.finals()) == held


def test_a_database_larger_than_a_page_is_merged_whole(here, tmp_path):
    many = [measured(number) for number in range(1, 2501)]
    with Database.open(tmp_path / "many.db") as source:
        source.add(many)
        assert merge(here, source) == Merged(2500, 2498, 0, 0)
    assert {m.config for m in here.measurements()} == {m.config for m in many}


@pytest.mark.slow(1, together="waiting")
def test_files_are_merged_into_a_server_and_back(here, there, postgres_server, tmp_path):
    with Database.open(postgres_server.new_database()) as server, Database.open(tmp_path / "back.db") as back:
        assert merge(server, here) == Merged(2, 2, 1, 1)
        assert merge(server, there) == Merged(3, 2, 2, 2)
        merge(back, server)
        merge(here, there)
        assert list(back.measurements()) == list(server.measurements()) == list(here.measurements())
        assert back.finals() == server.finals() == here.finals()
        assert server.add([replace(measured(2), worker="a third")]) == 0
