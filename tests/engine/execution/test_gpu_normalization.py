"""GPUs of one kind that are not equally fast, or lie: times are compared on one scale, and kept as they were measured.

What a GPU that lies measured does not count, and the table is the one that honest GPUs make.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from gemmtune.engine.api.tune_result import TuneResult
from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, recorded_device, replayed_backend
from gemmtune.engine.execution import board_checks
from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.execution.workers import Provenance
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, Reading
from gemmtune.engine.processes.process_pool import Outcome, log_notice
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Trust
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

pytestmark = pytest.mark.slow(5)

PLAN = Plan(sampler="evolution", budget=48, batch=8, seed=3)
PROTOCOL = "graph-cold-l2"
TOOLS = Toolchain((("torch", "2.11.0"),))


@pytest.fixture(scope="module")
def recorded():
    """Two problems, with every fourth config."""
    found = completed(read_all(embedded()), PLAN.spaces, None)
    names = sorted({landscape.name for landscape in found})[:2]
    two = (landscape for landscape in found if landscape.name in names)
    return tuple(replace(each, points=dict(list(each.points.items())[::4])) for each in two)


class Bench:
    """A GPU that takes `slowness` times as long as the one that was recorded, and tells its level."""

    size = 1

    def __init__(self, recorded, board: str, slowness: float, chance: random.Random) -> None:
        self.recorded, self.board, self.slowness, self.chance = ReplayExecutor(recorded), board, slowness, chance
        self.jobs: list[object] = []

    def submit(self, job):
        self.jobs.append(job)

    def collect(self):
        if self.chance.random() < 0.5:  # in an order of its own, beside the others
            return []
        jobs, self.jobs = self.jobs, []
        return [Outcome(job, self.final(job) if isinstance(job, FinalJob) else self.reading(job)) for job in jobs]

    def reading(self, job) -> Reading:
        answer = self.answer(job.task, job.config)
        if answer.status is not Status.OK:
            return Reading(answer.status, answer.reason)
        found = answer.estimate
        time_ns, low_ns, high_ns = (ns * self.slowness for ns in (found.time_ns, found.low_ns, found.high_ns))
        estimate = Estimate(time_ns, low_ns, high_ns, self.level(job.task))
        return Reading(Status.OK, "", tuple(ns * self.slowness for ns in answer.samples_ns), estimate)

    def final(self, job) -> FinalReading:
        readings = [self.reading(finalist) for finalist in job.finalists]
        order = sorted(range(len(readings)), key=lambda number: readings[number].estimate.time_ns)
        best = readings[order[0]].estimate.time_ns
        return FinalReading(
            tuple(
                FinalistReading(
                    n, readings[n].estimate, readings[n].samples_ns, (readings[n].estimate.time_ns / best - 1,) * 2
                )
                for n in order
            )
        )

    def level(self, task) -> ReferenceLevel:
        vendor = self.answer(Task(task.problem, task.device, "aten"), Config({}))
        return ReferenceLevel("torch 2.11.0", self.board, vendor.estimate.time_ns * self.slowness)

    def answer(self, task, config) -> Measurement:
        self.recorded.submit(task, config)
        (answer,) = self.recorded.collect(0.0)
        assert isinstance(answer, Measurement)
        return answer

    def close(self):
        pass


LIES = {
    "slow": lambda reading, chance: scaled(reading, 3.0),
    "fast": lambda reading, chance: scaled(reading, 1 / 3),
    "noisy": lambda reading, chance: scaled(reading, chance.uniform(0.4, 2.5)),
    "level": lambda reading, chance: at_level(reading, 3.0),
    "wrong": lambda reading, chance: Reading(Status.WRONG_RESULT, "norm 1e3"),
}
"""A GPU by each kind of lie: slow or fast but for the reference kernel, shared with others, set up while it was
throttled, and broken."""


def scaled(reading, factor):
    estimate = reading.estimate.scaled(factor)
    return replace(reading, estimate=estimate, samples_ns=tuple(ns * factor for ns in reading.samples_ns))


def at_level(reading, factor):
    level = replace(reading.estimate.level, time_ns=factor * reading.estimate.level.time_ns)
    return replace(reading, estimate=replace(reading.estimate, level=level))


class Liar(Bench):
    """A GPU that lies in the way that its name says (`slow2`: a second one), after `honest` true answers."""

    honest = 0

    def __init__(self, *given) -> None:
        super().__init__(*given)
        self.told, self.lie = 0, self.board.rstrip("2")

    def reading(self, job) -> Reading:
        reading, self.told = super().reading(job), self.told + 1
        return reading if reading.estimate is None or self.told <= self.honest else LIES[self.lie](reading, self.chance)

    def final(self, job):
        return FinalReading((), ((0, "norm 1e3"),)) if self.lie == "wrong" else super().final(job)


class Short(Bench):
    """A GPU whose first problem has kernels so short that their times differ from launch to launch, and says so."""

    noisy = None

    def reading(self, job) -> Reading:
        reading = super().reading(job)
        self.noisy = self.noisy or job.task.problem
        if reading.estimate is None or job.task.problem != self.noisy:
            return reading
        reading = scaled(reading, self.chance.choice([0.85, 1.0, 1.18]))
        time_ns = reading.estimate.time_ns
        return replace(reading, estimate=replace(reading.estimate, low_ns=0.9 * time_ns, high_ns=1.1 * time_ns))


class Compiler:
    """Builds whatever it is given."""

    size = 1

    def __init__(self) -> None:
        self.jobs: list[object] = []

    def submit(self, job):
        self.jobs.append(job)

    def collect(self):
        jobs: list[Any] = self.jobs
        self.jobs = []
        return [Outcome(job, Artifact(job.config.json, job.task.space, "", "", (), None, 0.1, TOOLS)) for job in jobs]

    def close(self):
        pass


class Host:
    """These GPUs; no job has an affinity, so that each problem is measured on all of them."""

    def __init__(self, recorded, slowness: Mapping[str, float], seed: int, notify=log_notice) -> None:
        chance = random.Random(seed)
        benches = {}
        for name, times in slowness.items():
            kind = Short if name.startswith("short") else Liar if name.rstrip("2") in LIES else Bench
            benches[name] = kind(recorded, name, times, chance)
        self.builders = Dispatcher({"cpu": Compiler()})
        self.workers = Dispatcher(benches, notify=notify)

    def wait(self, timeout_seconds):
        pass

    def close(self):
        self.workers.close()
        self.builders.close()


def tuned(recorded, slowness, path, *, seed=0, holds_finals=True, plan=PLAN, notify=log_notice, followers=()):
    """The result of a campaign on these GPUs, and what its database then holds."""
    provenance = Provenance(Evidence.MEASURED, holds_finals, lambda task: TOOLS, lambda task: PROTOCOL)
    executor = BuildMeasurePipeline(
        provenance, lambda: Host(recorded, slowness, seed, notify), len(slowness), early_stopping=False, notify=notify
    )
    with closing(executor), Database.open(path) as database:
        result = execute(plan, replayed_backend(plan, recorded, executor), database, followers)
        return result, list(database.measurements())


def winners(result):
    return [[(choice.space, choice.config) for choice in row.choices] for row in result.table.rows]


@pytest.fixture(scope="module", params=[True, False], ids=["with finals", "without"])
def alone(request, recorded, tmp_path_factory):
    """Whether campaigns hold finals, and the result of one on the GPU that was recorded."""
    path = tmp_path_factory.mktemp("alone") / "alone.db"
    return request.param, tuned(recorded, {"GPU-a": 1.0}, path, holds_finals=request.param)[0]


@pytest.mark.parametrize("seed", range(2))
def test_a_slower_gpu_among_the_workers_changes_no_choice_and_no_margin(recorded, alone, tmp_path, seed):
    holds_finals, alone = alone
    slowness = {"GPU-a": 1.0, "GPU-b": 1.25, "GPU-c": 0.9}
    mixed, held = tuned(recorded, slowness, tmp_path / "mixed.db", seed=seed, holds_finals=holds_finals)
    assert {m.worker for m in held if m.status is Status.OK} == set(slowness)
    assert winners(mixed) == winners(alone)
    assert [f.config for f in mixed.findings] == [f.config for f in alone.findings]
    for one, other in zip(mixed.table.rows, alone.table.rows, strict=True):
        assert one.lead == pytest.approx(other.lead, rel=1e-9)


def test_one_gpu_keeps_its_times_as_they_are_and_several_in_the_database(recorded, tmp_path):
    _, held = tuned(recorded, {"GPU-a": 1.0, "GPU-b": 1.25}, tmp_path / "m.db")
    bench = Bench(recorded, "GPU-b", 1.25, random.Random(0))
    seen = [m for m in held if m.worker == "GPU-b" and m.status is Status.OK]
    assert seen
    for measurement in seen:
        reading = bench.reading(measurement)
        assert (measurement.samples_ns, measurement.estimate) == (reading.samples_ns, reading.estimate)
    result, held = tuned(recorded, {"GPU-b": 1.25}, tmp_path / "slow.db", holds_finals=False)
    measured = {(m.task.problem, m.task.space, m.config): m.estimate for m in held}
    for row in result.table.rows:
        for choice in row.choices:
            assert choice.time_ns == measured[row.problem, choice.space, choice.config].time_ns


def test_a_campaign_that_goes_on_elsewhere_keeps_its_scale(recorded, half, tmp_path):
    whole, _ = tuned(recorded, {"GPU-a": 1.0}, tmp_path / "whole.db", holds_finals=False)
    path = shutil.copy(half, tmp_path / "moved.db")
    moved, held = tuned(recorded, {"GPU-b": 1.25}, path, holds_finals=False)
    assert {m.worker for m in held if m.status is Status.OK} == {"GPU-a", "GPU-b"}
    assert winners(moved) == winners(whole)
    for one, other in zip(moved.table.rows, whole.table.rows, strict=True):
        assert one.choices[0].time_ns == pytest.approx(other.choices[0].time_ns, rel=1e-9)


@pytest.fixture
def database(tmp_path):
    with Database.open(tmp_path / "m.db") as opened:
        yield opened


def measured(task, x, time_ns, *, reference="torch 2.11.0", board="GPU-a", level_ns=100.0) -> Measurement:
    level = None if level_ns is None else ReferenceLevel(reference, board, level_ns)
    return Measurement(
        task=task,
        config=Config({"x": x}),
        status=Status.OK,
        evidence=Evidence.MEASURED,
        protocol=PROTOCOL,
        toolchain=TOOLS,
        worker=board,
        created_at="2026-11-22T00:00:00+00:00",
        samples_ns=(time_ns,),
        estimate=Estimate(time_ns, time_ns, time_ns, level),
    )


def test_the_scale_is_the_first_gpus_and_noise_of_its_later_levels_is_none(recorded, database):
    device = recorded_device(recorded)
    triton, aten = (Task(recorded[0].problem, device, space) for space in ("triton_mm", "aten"))
    given = [
        measured(aten, 0, 100.0),
        measured(triton, 1, 90.0, board="GPU-b", level_ns=125.0),
        measured(triton, 2, 80.0, level_ns=101.0),  # the first GPU again, by a later process
        measured(triton, 3, 70.0, board="GPU-b", level_ns=120.0),
        measured(triton, 4, 60.0, reference="torch 2.13.0", level_ns=50.0),  # another reference tells nothing
        measured(triton, 5, 50.0, level_ns=None),
    ]
    database.add(given)
    assert database.levels(aten.problem, device, PROTOCOL) == (
        ReferenceLevel("torch 2.11.0", "GPU-a", 100.0),
        ReferenceLevel("torch 2.11.0", "GPU-b", 125.0),
        ReferenceLevel("torch 2.13.0", "GPU-a", 50.0),
    )
    assert database.levels(aten.problem, device, "graph-warm-l2") == ()
    normalization = GpuNormalization(database)
    found = [normalization.normalize(measurement) for measurement in given]
    assert [m.estimate.time_ns for m in found] == [100.0, 72.0, 80.0, 56.0, 60.0, 50.0]
    assert [m.samples_ns for m in found] == [m.samples_ns for m in given]
    assert list(database.measurements()) == given


def verdicts(path):
    with Database.open(path, read_only=True) as database:
        return {board: each.trust for board, each in database.boards.verdicts().items()}


@pytest.mark.parametrize("honest", [("GPU-a",), ("GPU-a", "GPU-b")], ids=["of two", "of three"])
@pytest.mark.parametrize("lie", LIES)
def test_a_gpu_that_lies_is_named_and_the_table_is_that_of_the_others(recorded, alone, tmp_path, lie, honest):
    holds_finals, alone = alone
    path, notices = tmp_path / "m.db", []
    gpus = dict.fromkeys((*honest, lie), 1.0)
    found, held = tuned(recorded, gpus, path, seed=1, holds_finals=holds_finals, notify=notices.append)
    assert [line for line in notices if line.startswith(f"{lie} is quarantined: ")], notices
    assert verdicts(path) == dict.fromkeys(honest, Trust.SEEN) | {lie: Trust.QUARANTINED}
    assert {m.worker for m in held if m.status is Status.OK} <= set(honest)
    assert found.table == alone.table


@pytest.mark.parametrize("lie", LIES)
def test_two_gpus_that_lie_alike_do_not_outvote_an_honest_one(recorded, alone, tmp_path, lie):
    holds_finals, alone = alone
    gpus, path = dict.fromkeys(("GPU-a", lie, f"{lie}2"), 1.0), tmp_path / "m.db"
    assert tuned(recorded, gpus, path, holds_finals=holds_finals)[0].table == alone.table
    assert verdicts(path) == dict.fromkeys(gpus, Trust.QUARANTINED) | {"GPU-a": Trust.SEEN}


@pytest.mark.parametrize(("lie", "seed"), [*((lie, 1) for lie in LIES), ("noisy", 17)])
def test_what_a_gpu_measured_since_it_went_bad_is_measured_again(recorded, alone, tmp_path, monkeypatch, lie, seed):
    holds_finals, alone = alone
    monkeypatch.setattr(Liar, "honest", 40)
    monkeypatch.setattr(board_checks, "_FIRST_RESULTS", 16)
    path = tmp_path / "m.db"
    found, held = tuned(recorded, {"GPU-a": 1.0, lie: 1.0}, path, seed=seed, holds_finals=holds_finals)
    assert verdicts(path) == {"GPU-a": Trust.SEEN, lie: Trust.QUARANTINED}
    assert found.table == alone.table
    with Database.open(path, read_only=True) as database:
        assert database.boards.withdrawn()[0] > 0 or lie == "wrong", (
            "its failures were contradicted before they were stored"
        )
        assert len(database) == len({(m.task, m.config) for m in held})


class Forgets(Callback):
    """Withdraws what GPU-b measured, as another driver or a person would, at one of a campaign's measurements."""

    def __init__(self, path, at: int) -> None:
        self.path, self.left = path, at

    def on_measurement(self, measurement, score, *, known) -> None:
        self.left -= 1
        if not self.left:
            with Database.open(self.path) as database:
                self.withdrawn = database.boards.withdraw("GPU-b", "by hand")


def test_what_somebody_else_withdraws_meanwhile_is_measured_again(recorded, alone, tmp_path):
    holds_finals, alone = alone
    forgets = Forgets(tmp_path / "m.db", 60)
    gpus = {"GPU-a": 1.0, "GPU-b": 1.0}
    found, held = tuned(recorded, gpus, forgets.path, holds_finals=holds_finals, followers=[forgets])
    assert forgets.withdrawn[0] > 0
    assert found.table == alone.table
    with Database.open(forgets.path, read_only=True) as database:
        assert database.boards.withdrawn() == forgets.withdrawn
        assert len(held) == sum(finding.evaluations for finding in found.findings) + len(found.table.rows)


def test_a_gpu_that_only_holds_finals_is_checked_and_its_finals_are_held_again(recorded, tmp_path):
    alone, path = tuned(recorded, {"GPU-a": 1.0}, tmp_path / "alone.db")[0], tmp_path / "m.db"
    tuned(recorded, {"GPU-a": 1.0}, path, holds_finals=False)
    assert tuned(recorded, {"slow": 1.0, "GPU-a": 1.0}, path)[0].table == alone.table
    assert verdicts(path)["slow"] is Trust.QUARANTINED


def test_a_slower_gpu_is_neither_named_nor_left_out_and_one_that_is_off_is_named(
    recorded, alone, tmp_path, monkeypatch
):
    holds_finals, alone = alone
    path, notices = tmp_path / "m.db", []
    gpus = {"GPU-a": 1.0, "GPU-b": 1.2}
    _, held = tuned(recorded, gpus, path, holds_finals=holds_finals, notify=notices.append)
    assert (verdicts(path), notices) == (dict.fromkeys(gpus, Trust.SEEN), [])
    assert {m.worker for m in held if m.status is Status.OK} == set(gpus)
    monkeypatch.setitem(LIES, "slow", lambda reading, chance: scaled(reading, 1.08))
    path = tmp_path / "off.db"
    gpus = {"GPU-a": 1.0, "GPU-b": 1.0, "slow": 1.0}
    _, held = tuned(recorded, gpus, path, holds_finals=holds_finals, notify=notices.append)
    assert verdicts(path) == {"GPU-a": Trust.SEEN, "GPU-b": Trust.SEEN, "slow": Trust.OFF}
    assert notices == ["slow: its times are 1.08 times those of other boards, by canaries beside the reference kernel"]
    assert {m.worker for m in held if m.status is Status.OK} == set(gpus)


def test_two_gpus_that_differ_are_both_named_where_the_vendors_kernel_does_not_tell(recorded, tmp_path, monkeypatch):
    def slow_but_for_the_vendor(reading, chance):
        level = reading.estimate.level.time_ns
        return reading if reading.estimate.time_ns == level else scaled(reading, 1.5)

    monkeypatch.setitem(LIES, "slow", slow_but_for_the_vendor)
    path, notices = tmp_path / "m.db", []
    tuned(recorded, {"GPU-a": 1.0, "slow": 1.0}, path, holds_finals=False, notify=notices.append)
    assert verdicts(path) == {"GPU-a": Trust.OFF, "slow": Trust.OFF}
    assert all(line.endswith("and nothing tells which is right") for line in notices)


def test_a_failure_counts_once_another_gpu_has_it_too(recorded, alone, tmp_path, monkeypatch):
    holds_finals, alone = alone
    monkeypatch.setitem(
        LIES, "wrong", lambda reading, chance: reading if chance.random() < 0.8 else Reading(Status.WRONG_RESULT, "bit")
    )
    found, held = tuned(recorded, {"GPU-a": 1.0, "wrong": 1.0}, tmp_path / "m.db", holds_finals=False)
    assert not [m for m in held if m.reason == "bit"]
    if not holds_finals:
        assert winners(found) == winners(alone)


@pytest.fixture(scope="module")
def half(recorded, tmp_path_factory):
    """The database of half a campaign on the GPU that was recorded; copy it."""
    path = tmp_path_factory.mktemp("half") / "half.db"
    tuned(recorded, {"GPU-a": 1.0}, path, holds_finals=False, plan=replace(PLAN, budget=24))
    return path


@pytest.mark.parametrize("lie", LIES)
def test_one_gpu_alone_is_compared_with_what_another_one_measured_before(recorded, alone, half, tmp_path, lie):
    holds_finals, alone = alone
    path = shutil.copy(half, tmp_path / "m.db")
    with pytest.raises(GemmtuneError, match=f"^{lie} is quarantined, and no other GPU is left: "):
        tuned(recorded, {lie: 1.0}, path, holds_finals=holds_finals)
    found, held = tuned(recorded, {"GPU-b": 1.0}, path, holds_finals=holds_finals)
    assert {m.worker for m in held if m.status is Status.OK} == {"GPU-a", "GPU-b"}
    assert found.table == alone.table


@pytest.mark.parametrize("names", [("short",), ("short", "short too")], ids=["one GPU", "two"])
def test_kernels_whose_times_differ_anyway_say_nothing_of_a_gpu(recorded, tmp_path, monkeypatch, names):
    monkeypatch.setattr(board_checks, "_FIRST_RESULTS", 8)
    for seed in range(4):
        path = tmp_path / f"{seed}.db"
        tuned(recorded, dict.fromkeys(names, 1.0), path, seed=seed, holds_finals=False)
        assert set(verdicts(path).values()) <= {Trust.SEEN}


def test_one_gpu_alone_that_contradicts_itself_ends_the_campaign(recorded, tmp_path, monkeypatch):
    monkeypatch.setattr(Liar, "honest", 20)
    monkeypatch.setattr(board_checks, "_FIRST_RESULTS", 16)
    with pytest.raises(GemmtuneError, match=r"^slow is quarantined, and no other GPU is left: .* times its own of be"):
        tuned(recorded, {"slow": 1.0}, tmp_path / "m.db", holds_finals=False)
    with Database.open(tmp_path / "m.db", read_only=True) as database:
        assert database.boards.withdrawn()[0]


def test_a_row_of_an_earlier_table_goes_with_the_withdrawn_time_of_its_kernel(recorded, tmp_path, monkeypatch):
    def fast_but_for_the_vendor(reading, chance):
        return reading if reading.estimate.time_ns == reading.estimate.level.time_ns else scaled(reading, 1 / 3)

    monkeypatch.setitem(LIES, "fast", fast_but_for_the_vendor)
    path, plan = tmp_path / "m.db", replace(PLAN, sampler="random", budget=12)
    lied = tuned(recorded, {"fast": 1.0}, path, plan=plan, holds_finals=False)[0].table
    assert all(row.lead > 0.4 for row in lied.rows)
    with Database.open(path) as database:
        database.boards.withdraw("fast", "by hand")
    honest = tuned(recorded, {"GPU-a": 1.0}, path, holds_finals=False)[0]
    result = TuneResult(PLAN, recorded_device(recorded), honest, str(path))
    with Database.open(path) as database:
        result.join(lied, database)
    assert result.campaign.table.rows == honest.table.rows
