"""The local executor on scripted pools: binaries kept and deleted, finals held, lost, and held again."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine.execution import local as local_executor
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.measure.builder import BuildFailure
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, Reading
from gemmtune.engine.processes.process_pool import Loss, Outcome
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, FinalNotHeld
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

TASK = Task(Problem(16, 64, 64), catalogue.device("H200"), "toy")
TOOLS = Toolchain((("toy", "1.0"),))


class FakePool:
    """Runs each job when it is collected."""

    def __init__(self, handler):
        self.handler = handler
        self.jobs = deque()

    @property
    def pending(self):
        return len(self.jobs)

    def submit(self, job):
        self.jobs.append(job)

    def collect(self):
        jobs, self.jobs = self.jobs, deque()
        return [answer if isinstance(answer := self.handler(job), Outcome) else Outcome(job, answer) for job in jobs]

    def receive(self):
        return bool(self.jobs)

    size = 100

    def fileno(self):
        return 2  # any file: the deadline is over

    def next_deadline(self):
        return 0.0

    def close(self):
        self.jobs.clear()


class Machine:
    """An executor of fake pools, with what they were asked and what they shall answer."""

    def __init__(self, monkeypatch, folder: Path) -> None:
        self.folder = folder
        self.executors: list[LocalExecutor] = []
        self.refuses_to_build: set[int] = set()
        self.measured: list = []
        self.built: list[int] = []
        self.finals: list[list[int]] = []
        self.final_answers: deque = deque()
        self.notices: list[str] = []
        self.given_notify: list = []
        self.workers = FakePool(self.work)
        monkeypatch.setattr(registry, "space", lambda name: SimpleNamespace(toolchain=lambda: TOOLS))
        monkeypatch.setattr(local_executor, "worker_pool", self.open_workers)
        monkeypatch.setattr(local_executor, "builder_pool", self.open_builders)

    def open_workers(self, *given, notify, **named) -> FakePool:
        self.given_notify.append(notify)
        return self.workers

    def open_builders(self, spaces, folder, size, *, notify, cpus) -> FakePool:
        self.given_notify.append(notify)
        return FakePool(self.build)

    def executor(self, protocol: str = "graph-cold-l2", **options) -> LocalExecutor:
        self.executors.append(LocalExecutor(["toy"], protocol, notify=self.notices.append, **options))
        return self.executors[-1]

    def build(self, job):
        x = job.config.integer("x")
        self.built.append(x)
        if x in self.refuses_to_build:
            return BuildFailure("too many registers", 0.2)
        path = self.folder / f"{x}"
        path.write_bytes(b"binary")
        return Artifact(f"{x}", "toy", str(path), "digest", (), None, 0.5, TOOLS)

    def work(self, job):
        if isinstance(job, FinalJob):
            assert all(Path(finalist.artifact.path).exists() for finalist in job.finalists)
            self.finals.append([finalist.config.integer("x") for finalist in job.finalists])
            answer = self.final_answers.popleft()
            return Outcome(job, None, *answer) if isinstance(answer, tuple) else answer
        self.measured.append(job)
        x = job.config.integer("x")
        if x == 99:
            return Outcome(job, None, Loss.DIED, "its process ended (exit status 3)")
        return Reading(Status.OK, "", (1000.0 + x,), Estimate(1000.0 + x, 999.0 + x, 1001.0 + x))

    @property
    def files(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir())


@pytest.fixture
def machine(monkeypatch, tmp_path):
    folder = tmp_path / "binaries"
    folder.mkdir()
    machine = Machine(monkeypatch, folder)
    yield machine
    for executor in machine.executors:
        executor.close()


def config(x: int) -> Config:
    return Config({"x": x})


def candidates(*xs: int) -> list[tuple[Task, Config]]:
    return [(TASK, config(x)) for x in xs]


def drained(executor: LocalExecutor, count: int) -> list:
    finished: list = []
    for _ in range(20):
        finished += executor.collect(0.0)
        if len(finished) >= count:
            return finished
    raise AssertionError(f"{len(finished)} of {count} came back")


def measured(executor: LocalExecutor, *xs: int) -> list[Measurement]:
    for x in xs:
        executor.submit(TASK, config(x))
    return drained(executor, len(xs))


def standings(*numbers: int) -> FinalReading:
    """A final in which these positions came in this order."""
    return FinalReading(tuple(FinalistReading(n, Estimate(9.0, 8.0, 10.0), (9.0,), (0.0, 0.0)) for n in numbers))


def test_the_binaries_of_the_eight_fastest_stay_until_the_final_is_over(machine):
    executor = machine.executor()
    found = measured(executor, *range(11, -1, -1), 99)
    assert {m.config.integer("x"): m.status for m in found}[99] is Status.RUN_FAILED
    assert machine.files == [0, 1, 2, 3, 4, 5, 6, 7]
    machine.final_answers.append(standings(1, 0))
    executor.hold_final(candidates(0, 1))
    (final,) = drained(executor, 1)
    assert isinstance(final, Final)
    assert [(f.config, f.toolchain) for f in final.finalists] == [(config(1), TOOLS), (config(0), TOOLS)]
    assert (final.protocol, final.failed) == ("graph-cold-l2", ())
    assert machine.files == []


def test_where_no_final_can_be_held_no_binary_stays(machine):
    executor = machine.executor("graph-cold-l2+energy")
    assert not executor.holds_finals
    measured(executor, 1, 2)
    assert machine.files == []


@pytest.mark.parametrize(
    ("protocol", "early_stopping", "races"),
    [("graph-cold-l2", True, True), ("graph-cold-l2", False, False), ("graph-cold-l2+energy", True, False)],
)
def test_a_config_races_against_the_best_before_it_unless_all_samples_are_wanted(
    machine, protocol, early_stopping, races
):
    executor = machine.executor(protocol, early_stopping=early_stopping)
    for x in (5, 3, 4):
        measured(executor, x)
    leaders = [job.leader and job.leader.time_ns for job in machine.measured]
    assert leaders == ([None, 1005.0, 1003.0] if races else [None] * 3)
    assert {job.early_stopping for job in machine.measured} == {races}


def test_a_final_of_what_an_earlier_run_measured_builds_it_again(machine):
    executor = machine.executor()
    machine.final_answers.append(standings(0, 1))
    measured(executor, 2)
    executor.hold_final(candidates(1, 2))
    assert isinstance(drained(executor, 1)[0], Final)
    assert machine.built == [2, 1]
    assert machine.finals == [[1, 2]]
    assert [job.config for job in machine.measured] == [config(2)]
    assert machine.files == []


def test_a_final_leaves_the_binary_of_a_stored_config_that_boards_are_compared_by(machine):
    stored = measured(machine.executor(), 1)
    executor = machine.executor()
    executor.compare_with(stored)
    machine.measured.clear()
    machine.final_answers.append(standings(0, 1))
    executor.hold_final(candidates(1, 2))
    assert isinstance(drained(executor, 1)[0], Final)
    executor.check_boards()
    executor.collect(0.0)
    canaries = [Path(job.artifact.path) for job in machine.measured]
    assert [path.exists() for path in canaries] == [True]


def test_a_finalist_that_does_not_build_again_is_left_out_with_a_notice(machine):
    executor = machine.executor()
    machine.refuses_to_build = {1}
    machine.final_answers.append(standings(0, 1))
    executor.hold_final(candidates(1, 2, 3))
    (final,) = drained(executor, 1)
    assert machine.finals == [[2, 3]]
    assert [f.config for f in final.finalists] == [config(2), config(3)]
    assert machine.notices == [f"{TASK.key} {config(1)} did not build again for the final"]


def test_a_final_for_which_nothing_builds_is_not_held(machine):
    executor = machine.executor()
    machine.refuses_to_build = {1, 2}
    executor.hold_final(candidates(1, 2))
    assert drained(executor, 1) == [FinalNotHeld(TASK.problem, "no finalist was built again")]
    assert machine.finals == []


def test_a_finalist_that_fails_its_check_is_left_out_with_the_reason(machine):
    executor = machine.executor()
    machine.final_answers.append(FinalReading(standings(2, 0).ranking, ((1, "off by 0.3"),)))
    executor.hold_final(candidates(1, 2, 3))
    (final,) = drained(executor, 1)
    assert final.failed == (FailedFinalist(TASK, config(2), "off by 0.3"),)
    assert [f.config for f in final.finalists] == [config(3), config(1)]


def test_a_finalist_that_breaks_the_gpu_is_left_out_of_a_second_final(machine):
    executor = machine.executor()
    machine.final_answers += [FinalReading((), ((0, "illegal address"),)), standings(1, 0)]
    executor.hold_final(candidates(1, 2, 3))
    (final,) = drained(executor, 1)
    assert machine.finals == [[1, 2, 3], [2, 3]]
    assert final.failed == (FailedFinalist(TASK, config(1), "illegal address"),)
    assert [f.config for f in final.finalists] == [config(3), config(2)]


def test_a_final_whose_process_is_lost_or_that_nobody_passes_is_told_as_unsettled(machine):
    executor = machine.executor()
    measured(executor, 1, 2)
    machine.final_answers.append((Loss.TIMED_OUT, "still running after 60 s"))
    executor.hold_final(candidates(1, 2))
    assert drained(executor, 1) == [FinalNotHeld(TASK.problem, "still running after 60 s")]
    assert machine.files == []
    machine.final_answers.append(FinalReading((), ((0, "off"), (1, "off"))))
    executor.hold_final(candidates(1, 2))
    assert drained(executor, 1) == [FinalNotHeld(TASK.problem, "no finalist passed its check")]


def test_what_a_pruner_drops_once_it_is_built_is_neither_measured_nor_kept(machine):
    def judge(candidate, history):
        return Verdict.no("spills", "spills 64 B") if candidate.artifact else Verdict.yes()

    executor = machine.executor(pruners={"static": SimpleNamespace(judge=judge)})
    (found,) = measured(executor, 1)
    assert (found.status, found.reason) == (Status.INVALID, "pruned by static: spills 64 B")
    assert (found.protocol, found.build_seconds) == ("graph-cold-l2", 0.5)
    assert (machine.built, machine.measured, machine.files) == ([1], [], [])


def test_what_a_pruner_drops_beforehand_is_not_built_and_may_be_measured_later(machine, tmp_path):
    def judge(candidate, history):
        return Verdict.no("estimate", "slow") if candidate.config["x"] < 3 else Verdict.yes()

    executor = machine.executor(pruners={"keeps": SimpleNamespace(judge=lambda *given: Verdict.yes()),
                                "prior": SimpleNamespace(judge=judge)})  # fmt: skip
    found = {m.config["x"]: m for m in measured(executor, 1, 2)}
    assert {(m.status, m.reason, m.build_seconds) for m in found.values()} == {
        (Status.INVALID, "pruned by prior: slow", None)
    }
    found |= {m.config["x"]: m for m in measured(executor, 3)}
    assert found[3].status is Status.OK
    assert (machine.built, [job.config for job in machine.measured]) == ([3], [config(3)])
    with Database.open(tmp_path / "m.db") as database:
        database.add(list(found.values()))
        assert len(list(database.measurements())) == 3
        known = database.known(TASK, executor.protocol(TASK), executor.evidence, executor.toolchain(TASK))
        assert list(known) == [config(3)]


def test_every_pool_is_told_whom_to_notify(machine):
    measured(machine.executor(), 1)
    for notify in machine.given_notify:
        notify("no new process")
    assert machine.notices == ["no new process"] * 2


def test_builders_leave_a_core_of_many_to_the_driver():
    few, many = {0, 1, 2}, set(range(64))
    assert local_executor._cpus_for_builders(few) == few
    left = many - local_executor._cpus_for_builders(many)
    assert 0 in left
    assert len(left) in (1, 2)  # a core's hardware threads
