"""Rows of a board are withdrawn: kept and not used, on SQLite and on a PostgreSQL server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import Merged, merge

TASK = Task(Problem.parse("16x4096x4096:bf16:nt"), catalogue.device("H200"), "triton_mm")
TOOLS = Toolchain((("torch", "2.11.0"),))
BAD, GOOD = "GPU-bad", "GPU-good"


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path):
    if request.param == "sqlite":
        return str(tmp_path / "m.db")
    return request.getfixturevalue("postgres_server").new_database()


def measured(x: int, board: str, hour: int, status: Status = Status.OK) -> Measurement:
    level = ReferenceLevel("torch 2.11.0", board, 100.0)
    return Measurement(
        task=TASK,
        config=Config({"x": x}),
        status=status,
        evidence=Evidence.MEASURED,
        protocol="graph-cold-l2",
        toolchain=TOOLS,
        worker=f"worker of {board}",
        created_at=f"2026-11-22T{hour:02}:00:00+00:00",
        samples_ns=(9.0,) if status is Status.OK else (),
        estimate=Estimate(9.0, 9.0, 9.0, level) if status is Status.OK else None,
    )


def final(m: Measurement) -> Final:
    finalist = Finalist(m.task, m.config, TOOLS, m.estimate, m.samples_ns, (0.0, 0.0))
    return Final((finalist,), m.protocol, m.worker, m.created_at)


def test_rows_of_a_board_go_failures_too_and_can_be_measured_again(url):
    early, late = measured(1, BAD, 1), measured(2, BAD, 3)
    failed, other = measured(3, BAD, 4, Status.WRONG_RESULT), measured(4, GOOD, 4)
    with Database.open(url) as database:
        database.add([early, late, failed, other])
        database.add_finals([final(early), final(late), final(other)])
        database.add_searches({"key": [late.config.digest]})
        assert database.boards.withdraw(BAD, "it lies", since="2026-11-22T02:00:00+00:00") == (2, 1)
        assert list(database.measurements()) == [early, other]
        assert database.finals() == [final(early), final(other)]
        assert database.searches(["key"]) == {}, "its sampler was told what is withdrawn"
        assert database.boards.withdrawn() == (2, 1)
        again = replace(failed, worker="worker of GPU-good", reason="again")
        assert database.add([again]) == 1
        assert database.boards.withdraw(BAD, "it lies") == (1, 1), "all that it ever measured"
        assert list(database.measurements()) == [other, again]
        assert database.boards.withdraw(BAD, "it lies") == (0, 0)


def test_withdrawn_rows_are_counted_by_device(url):
    early = measured(1, BAD, 1)
    devices = [catalogue.device("B200"), TASK.device]
    with Database.open(url) as database:
        database.add([early])
        database.add_finals([final(early)])
        database.boards.withdraw(BAD, "it lies")
        assert [database.boards.withdrawn([each]) for each in devices] == [(0, 0), (1, 1)]
        assert database.boards.withdrawn(devices) == database.boards.withdrawn() == (1, 1)


def test_a_worker_that_only_failed_is_the_boards_by_what_was_said_of_it(url):
    failed = measured(3, BAD, 4, Status.RUN_FAILED)
    with Database.open(url) as database:
        database.add([failed, measured(4, GOOD, 4)])
        assert database.boards.withdraw(BAD, "it lies") == (0, 0)
        at = failed.created_at
        database.boards.add(BoardVerdict(BAD, failed.worker, Trust.SEEN, "", at, at))
        assert database.boards.withdraw(BAD, "it lies") == (1, 0)
        assert len(database) == 1


def test_the_last_verdict_on_a_board_holds(url):
    first = BoardVerdict(BAD, "w", Trust.SEEN, "", "", "2026-11-22T01:00:00+00:00")
    then = replace(first, trust=Trust.OFF, reason="7 %", at="2026-11-22T02:00:00+00:00")
    with Database.open(url) as database:
        for each in (first, replace(first, board=GOOD), then, then):
            database.boards.add(each)
    with Database.open(url, read_only=True) as database:
        assert list(database.boards.verdicts().values()) == [then, replace(first, board=GOOD)]
    with Database.open(url) as database:
        for each in (again := replace(first, at=then.at), then, again):  # within one second
            database.boards.add(each)
        assert database.boards.verdicts()[BAD] == again


def test_a_database_of_an_older_version_gets_the_tables_and_is_read_without(tmp_path):
    path = tmp_path / "m.db"
    with Database.open(path) as database:
        database.add([measured(1, BAD, 1)])
        for name in ("boards", "withdrawn_measurements", "withdrawn_finals"):
            database._transactions.write(lambda connection, name=name: connection.execute(text(f"DROP TABLE {name}")))
    with Database.open(path, read_only=True) as database:
        assert (database.boards.verdicts(), database.boards.withdrawn()) == ({}, (0, 0))
    with Database.open(path) as database:
        assert database.boards.withdraw(BAD, "it lies") == (1, 0)


def test_a_merge_withdraws_what_a_site_found_to_be_a_bad_boards_since(url, tmp_path):
    early, late, other = measured(1, BAD, 1), measured(2, BAD, 3), measured(3, GOOD, 1)
    with Database.open(tmp_path / "site.db") as site, Database.open(url) as central:
        site.add([early, late, other])
        site.boards.add(BoardVerdict(BAD, early.worker, Trust.SEEN, "", early.created_at, early.created_at))
        merge(central, site)
        since, at = "2026-11-22T02:00:00+00:00", "2026-11-22T04:00:00+00:00"
        bad = BoardVerdict(BAD, late.worker, Trust.QUARANTINED, "it lies", since, at)
        site.boards.withdraw(BAD, "it lies", since=since)
        site.boards.add(bad)
        merge(central, site)
        assert list(central.measurements()) == list(site.measurements()) == [early, other]
        assert central.boards.verdicts() == site.boards.verdicts() == {BAD: bad}
        again = replace(late, created_at="2026-11-22T05:00:00+00:00")
        site.add([again])  # once it was repaired
        merge(central, site)
        assert list(central.measurements()) == [early, other, again]


def test_a_merge_brings_back_nothing_that_is_withdrawn_and_takes_over_verdicts(url, tmp_path):
    bad, later, other = measured(1, BAD, 1), measured(2, BAD, 5), measured(3, GOOD, 1)
    verdict = BoardVerdict(GOOD, other.worker, Trust.OFF, "5 % slow", other.created_at, other.created_at)
    with Database.open(tmp_path / "site.db") as site, Database.open(url) as central:
        site.add([bad, other])
        site.add_finals([final(bad), final(other)])
        site.boards.add(verdict)
        assert merge(central, site).new == 2
        central.boards.withdraw(BAD, "it lies")
        site.add([later])  # by the same GPU, once it was repaired
        assert merge(central, site) == Merged(3, 1, 2, 0)
        assert list(central.measurements()) == [other, later]
        assert central.finals() == [final(other)]
        assert central.boards.verdicts() == {GOOD: verdict}
