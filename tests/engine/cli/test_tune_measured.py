"""`gemmtune tune` and `gemmtune sweep` on a GPU that is only simulated."""

from __future__ import annotations

import re

import pytest

from gemmtune.engine.campaign import open_backend
from gemmtune.engine.execution import hosts
from gemmtune.engine.processes.process_pool import Quarantined
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes

DECODE = "16x4096x4096:bf16:nt"


class SimulatedExecutor(Executor):
    """A LocalExecutor without a GPU: every config is ok and takes 10 µs."""

    evidence = Evidence.MEASURED
    holds_finals = True
    parallel = 1
    last: SimulatedExecutor

    def __init__(self, spaces, protocol_name, **options):
        self.protocol_name, self.options, self.queue, self.collected = protocol_name, options, [], 0
        SimulatedExecutor.last = self

    def toolchain(self, task):
        return Toolchain((("simulated", "1"),))

    def protocol(self, task):
        return self.protocol_name

    def submit(self, task, config):
        self.queue.append((task, config))

    def hold_final(self, candidates):
        raise AssertionError("no final is due")

    def collect(self, timeout_seconds):
        finished, self.queue = [self.measured(task, config) for task, config in self.queue], []
        self.collected += len(finished)
        return finished

    def measured(self, task, config):
        return Measurement(
            Status.OK, task=task, config=config, evidence=self.evidence, protocol=self.protocol_name,
            toolchain=self.toolchain(task), worker="simulated", created_at="2026-11-21",
            samples_ns=(1e4,) * 32, estimate=Estimate(1e4, 1e4, 1e4), energy_joules=0.004,
        )  # fmt: skip

    def load(self):
        return None

    def close(self):
        pass


@pytest.fixture
def simulated(monkeypatch):
    monkeypatch.setattr(hosts, "present_device", lambda: catalogue.device("H200"))

    def use(executor=SimulatedExecutor):
        monkeypatch.setattr(hosts, "LocalExecutor", executor)
        return executor

    return use


def test_a_lost_gpu_ends_the_campaign_and_keeps_every_measurement(run, simulated, tmp_path, stored, refusal):
    class Loses(SimulatedExecutor):
        def collect(self, timeout_seconds):
            if self.collected >= 9:
                raise Quarantined("GPU 0 is quarantined: 3 worker processes in a row could not start; what was ...")
            return super().collect(timeout_seconds)

    simulated(Loses)
    ran = run("tune", "--problem", DECODE, "--budget", "40", "--batch", "8")
    *_, summary, error = ran.err.splitlines(keepends=True)
    assert re.fullmatch(r"8 evaluations in \d+ s; \S+/s; 0 of 1 task done\n", summary)
    refusal(ran._replace(err=error), "gemmtune: GPU 0 is quarantined: 3 worker processes in a row could not start")
    assert len(stored(tmp_path / "out/measurements.db")) == 9  # the baseline and a batch
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["measurements.db", "progress.json"]


def test_a_recorded_landscape_has_all_samples_of_every_config_and_no_final(run, simulated, tmp_path):
    executor = simulated()
    ran = run("sweep", "--problem", "64x64x64", "--out", "recorded")
    assert ran.status == 0, ran.err
    assert executor.last.options["early_stopping"] is False
    (landscape,) = read_landscapes(tmp_path / "recorded/h200_triton_mm.csv.gz")
    assert len(landscape.points) > 8
    assert {len(point.samples_ns) for point in landscape.points.values()} == {32}
    assert landscape.context["protocol"] == "graph-cold-l2"


def test_sweep_needs_a_gpu_and_says_so(run, tmp_path, contents, refusal):
    refusal(run("sweep", "--problem", DECODE), "sweep measures", "no NVIDIA GPU")
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    ("objective", "unit", "protocol", "score"),
    [("energy", "J", "graph-cold-l2+energy", 0.004), ("latency_warm", "ns", "graph-warm-l2", 1e4)],
)
def test_an_objective_is_measured_by_its_protocol(run, simulated, objective, unit, protocol, score):
    class HoldsNoFinal(SimulatedExecutor):
        holds_finals = False

    executor = simulated(HoldsNoFinal)
    record = run("tune", "--problem", DECODE, "--budget", "8", "--objective", objective, "--json").record
    assert executor.last.protocol_name == protocol
    assert (record["objective"], record["unit"]) == (objective, unit)
    assert [(task["score"], task["baseline_score"]) for task in record["tasks"]] == [(score, score)]


@pytest.fixture
def prepared(monkeypatch):
    """The spaces whose builders were prepared, of a machine that has a GPU."""
    spaces = []
    monkeypatch.setattr(open_backend, "gpu_names", lambda: ("NVIDIA H200",))
    monkeypatch.setattr(open_backend, "prepare_builders", spaces.append)
    return spaces


def test_builders_are_prepared_for_a_new_campaign_alone(run, simulated, prepared):
    class HoldsNoFinal(SimulatedExecutor):
        holds_finals = False

    simulated(HoldsNoFinal)
    campaign = ("tune", "--problem", DECODE, "--budget", "8")
    assert (run(*campaign).status, prepared) == (0, [("triton_mm",)])
    assert (run(*campaign).status, prepared) == (0, [("triton_mm",)])


@pytest.mark.parametrize(
    "arguments",
    [("--space", "nonesuch"), ("--sampler", "nonesuch"), ("--fleet", "slurm"), ("--replay", "none.csv")],
    ids=lambda arguments: arguments[0],
)
def test_no_builder_is_prepared_where_there_is_nothing_to_build(run, simulated, prepared, arguments):
    assert (run("tune", "--problem", DECODE, *arguments).status, prepared) == (2, [])
