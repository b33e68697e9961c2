"""Configs that screening stops early are in the database, with the reason, and counted in the campaign's result."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.execution.workers import Provenance
from gemmtune.engine.measure.deciding.blocks import Block
from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.deciding.screening import LaunchLimits, screen
from gemmtune.engine.measure.jobs import Reading
from gemmtune.engine.processes.process_pool import Outcome
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.measurement import Evidence, ReferenceLevel, Status
from gemmtune.engine.report.campaign import campaign_report
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

PROBLEM = "2048x4096x4096:bf16:nt"
PLAN = Plan(sampler="evolution", budget=32, batch=8, seed=3)
TOOLS = Toolchain((("torch", "2.11.0"),))


class FakeWorker:
    """Does each job when it is collected."""

    size = 1

    def __init__(self, work) -> None:
        self.work, self.jobs = work, []

    def submit(self, job):
        self.jobs.append(job)

    def collect(self):
        jobs, self.jobs = self.jobs, []
        return [Outcome(job, self.work(job)) for job in jobs]

    def close(self):
        pass


class Steady:
    """Every launch of a candidate takes what was recorded, every launch of the reference 1 µs."""

    def __init__(self, time_ns: float) -> None:
        self.time_ns = time_ns

    def single(self):
        return Block((self.time_ns,), (1000.0,))

    def block(self, number):
        return Block((self.time_ns,) * 8, (1000.0,) * 8)


@pytest.fixture(scope="module")
def recorded():
    found = completed(read_all(embedded()), PLAN.spaces, None)
    return tuple(landscape for landscape in found if landscape.name == PROBLEM)


def build(job):
    return Artifact(job.config.json, job.task.space, "", "", (), None, 0.1, TOOLS)


def tuned(recorded, path, *, early_stopping=True):
    """A campaign whose bench races by recorded times: its text, its record, and what the database then holds."""
    replay = ReplayExecutor(recorded)

    def measure(job):
        replay.submit(job.task, job.config)
        (answer,) = replay.collect(0.0)
        if answer.status is not Status.OK:
            return Reading(answer.status, answer.reason)
        found = screen(Steady(answer.estimate.time_ns), Drift(1000.0), job.leader, LaunchLimits())
        estimate = replace(found.estimate, level=ReferenceLevel("torch 2.11.0", "GPU-a", 1000.0), stopped=found.stopped)
        return Reading(answer.status, "", found.samples_ns, estimate)

    provenance = Provenance(Evidence.MEASURED, False, lambda task: TOOLS, lambda task: "graph-cold-l2")
    dispatchers = {
        "builders": Dispatcher({"cpu": FakeWorker(build)}),
        "workers": Dispatcher({"GPU-a": FakeWorker(measure)}),
    }
    machine = SimpleNamespace(**dispatchers, wait=lambda timeout_seconds: None, close=lambda: None)
    with (
        closing(BuildMeasurePipeline(provenance, lambda: machine, 1, early_stopping=early_stopping)) as executor,
        Database.open(path) as database,
    ):
        backend = replayed_backend(PLAN, recorded, executor)
        result = execute(PLAN, backend, database, ())
        report = campaign_report(PLAN, backend.device, result)
        text, record = report.to_text(), report.to_json()
        return text, record, [m for m in database.measurements() if m.task.space != "aten" and m.estimate]


def test_the_summary_says_how_many_configs_screening_stopped_and_the_database_why(recorded, tmp_path):
    text, record, held = tuned(recorded, tmp_path / "m.db")
    stopped = [m for m in held if m.estimate.stopped]
    assert 0 < len(stopped) < len(held)
    assert all("the leader's" in m.estimate.stopped for m in stopped)
    assert max(len(m.samples_ns) for m in stopped) < max(len(m.samples_ns) for m in held)
    assert record["stopped_early"] == record["tasks"][0]["stopped_early"] == len(stopped)
    assert f"\nscreening stopped {len(stopped)} of {len(held)} configs early\n" in text


def test_without_screening_nothing_is_said_of_it(recorded, tmp_path):
    text, record, held = tuned(recorded, tmp_path / "m.db", early_stopping=False)
    assert len(held) > 1
    assert not any(m.estimate.stopped for m in held)
    assert "screening" not in text
    assert record["stopped_early"] == record["tasks"][0]["stopped_early"] == 0
