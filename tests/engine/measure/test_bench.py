"""Jobs of a worker process, with a GPU whose checks, screenings and finals are told beforehand."""

from __future__ import annotations

import time
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmtune.engine.measure.deciding.clock_drift import Drift
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import DeviceState, Estimate, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure import bench as module  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.bench import Bench  # noqa: E402 (as above)
from gemmtune.engine.processes.process_pool import Last  # noqa: E402 (as above)

PROBLEM = Problem.parse("64x48x80")
TASK = Task(PROBLEM, catalogue.device("H200"), "toy")
LEVEL = ReferenceLevel("torch 2.13.0", "GPU-0", 1000.0)
STATE = DeviceState(1980, 3201, 40, 300_000)
OUTPUT = torch.empty(PROBLEM.m, PROBLEM.n, dtype=torch.bfloat16)
RIGHT, WRONG = SimpleNamespace(reason="", error_norm=1e-3), SimpleNamespace(reason="element 3 is 7", error_norm=2.0)


def job(number=1, leader_ns=None):
    artifact = Artifact("key", "toy", f"{number}", "digest", (), None, 0.1, Toolchain(()))
    leader = None if leader_ns is None else Estimate(leader_ns, leader_ns, leader_ns, LEVEL)
    return MeasureJob(TASK, Config({"x": number}), artifact, leader, early_stopping=leader_ns is not None)


def found(time_ns, samples=(1.0, 2.0)):
    return SimpleNamespace(
        samples_ns=samples,
        reference_ns=(10.0, 11.0),
        estimate=Estimate(time_ns, time_ns * 0.9, time_ns * 1.1),
        stopped="slow",
        drift=1.01,
    )


class Kernel:
    def __init__(self, name):
        self.name, self.closed = name, 0

    def close(self):
        self.closed += 1


class Gpu:
    """Setup, setups, timer, telemetry and space in one; `events` are the calls in their order."""

    level, drift = LEVEL, Drift(1000.0)
    may_be_throttled = object()
    sets = SimpleNamespace(kernel=[SimpleNamespace(outputs=(OUTPUT,))])

    def __init__(self):
        self.events, self.checks, self.screened, self.finals, self.loaded = [], [], [], [], []
        self.refused, self.usable, self.slow_blocks = {}, True, []

    def get(self, workload):
        return self

    def timer(self, kernel, workload, run=None):
        self.events.append(("timer", kernel.name, run))
        return self

    def final_run(self, workload):
        return "run"

    def bytes_besides(self, workload):
        return 0

    def start_check(self, kernel, number):
        self.events.append(("check", number))
        return lambda: self.checks.pop(0)

    def check(self, kernel, number):
        return self.start_check(kernel, number)()

    def add_reference_times(self, times):
        self.events.append(("reference", times))

    def start_singles(self, count):
        self.events.append(("singles", count))

    def loop(self, time_ns):
        return "replay", 50

    def close(self):
        self.events.append("timer closed")

    def read(self):
        return STATE

    def energy_mj(self):
        return 0

    def load(self, artifact, task):
        self.events.append(("load", artifact.path))
        if artifact.path in self.refused:
            raise self.refused[artifact.path]
        self.loaded.append(Kernel(artifact.path))
        return self.loaded[-1]

    def synchronize(self):
        if not self.usable:
            raise RuntimeError("CUDA error")

    def screen(self, paced, drift, leader, limits):
        self.events.append(("screen", leader and leader.time_ns, drift.may_be_throttled is self.may_be_throttled))
        return self.screened.pop(0)

    def hold_final(self, paced, limits, throttled):
        self.events.append(("final", len(paced), throttled is self.may_be_throttled))
        return self.finals.pop(0)


@pytest.fixture
def gpu(monkeypatch):
    gpu = Gpu()
    monkeypatch.setattr(torch.cuda, "synchronize", gpu.synchronize)
    monkeypatch.setattr(module, "screen", gpu.screen)
    monkeypatch.setattr(module, "hold_final", gpu.hold_final)
    monkeypatch.setattr(time, "sleep", lambda seconds: gpu.events.append(("rest", seconds)))
    gpu.slow_blocks = [SimpleNamespace(samples_ns=(9.0,))]
    monkeypatch.setattr(Bench, "_paced", lambda self, timer, setup: SimpleNamespace(slow_blocks=gpu.slow_blocks))
    return gpu


def bench_on(gpu, protocol_name="graph-cold-l2"):
    bench = Bench.__new__(Bench)
    bench._protocol, bench._telemetry, bench._setups = protocol(protocol_name), gpu, gpu
    bench._spaces, bench._leaders, bench._loaded, bench._upcoming = {"toy": gpu}, {}, None, lambda: None
    return bench


def test_a_reading_has_its_samples_its_estimate_and_the_state_of_the_gpu(gpu):
    gpu.checks, gpu.screened = [RIGHT], [found(5000.0)]
    reading = bench_on(gpu)(job())
    assert (reading.status, reading.reason, reading.error_norm) == (Status.OK, "", 1e-3)
    assert reading.samples_ns == (1.0, 2.0, 9.0)
    assert reading.outliers == (2,)  # a block that the clocks slowed
    assert reading.estimate == replace(found(5000.0).estimate, level=LEVEL, stopped="slow")
    assert (reading.before, reading.after, reading.drift, reading.energy_joules) == (STATE, STATE, 1.01, None)
    assert gpu.events == [
        ("load", "1"),
        ("check", -1),
        ("timer", "1", None),
        ("screen", None, True),
        ("reference", (10.0, 11.0)),
        "timer closed",
    ]
    assert gpu.loaded[0].closed == 1


def test_a_wrong_kernel_is_not_timed_and_is_closed(gpu):
    gpu.checks = [WRONG]
    reading = bench_on(gpu)(job())
    assert (reading.status, reading.reason, reading.error_norm) == (Status.WRONG_RESULT, "element 3 is 7", 2.0)
    assert (reading.before, reading.after, reading.samples_ns) == (STATE, None, ())
    assert gpu.loaded[0].closed == 1


@pytest.mark.parametrize(("leader_ns", "singles"), [(99_999.0, 2), (100_000.0, 1)])
def test_a_short_leader_lets_two_launches_start_beside_the_check(gpu, leader_ns, singles):
    gpu.checks, gpu.screened = [RIGHT], [found(leader_ns)]
    bench_on(gpu)(job(leader_ns=leader_ns))
    assert ("singles", singles) in gpu.events
    assert gpu.events.index(("check", -1)) < gpu.events.index(("singles", singles))


def test_a_faster_config_leads_later_ones_whatever_the_job_says(gpu):
    bench, times = bench_on(gpu), (5000.0, 4800.0, 4900.0, 5500.0)
    gpu.checks, gpu.screened = [RIGHT] * 4, [found(time_ns) for time_ns in times]
    for number in range(4):
        bench(job(number, leader_ns=5200.0))
    assert [event[1] for event in gpu.events if event[0] == "screen"] == [5200.0, 5000.0, 4800.0, 4800.0]


def test_a_leader_of_another_board_counts_at_this_ones_level(gpu):
    gpu.checks, gpu.screened = [RIGHT], [found(5000.0)]
    other = Estimate(5000.0, 5000.0, 5000.0, ReferenceLevel("torch 2.13.0", "GPU-1", 500.0))
    bench_on(gpu)(replace(job(), leader=other, early_stopping=True))
    assert ("screen", 10_000.0, True) in gpu.events


def test_a_leader_is_none_without_early_stopping(gpu):
    gpu.checks, gpu.screened = [RIGHT], [found(5000.0)]
    bench_on(gpu)(replace(job(leader_ns=9000.0), early_stopping=False))
    assert ("screen", None, True) in gpu.events
    assert not [event for event in gpu.events if event[0] == "singles"]


@pytest.mark.parametrize(
    ("protocol_name", "order", "leader_ns", "compares"),
    [
        ("graph-cold-l2+bits", "BLOCK_K 64", None, True),
        ("graph-cold-l2+bits", "BLOCK_K 64", 2500.0, True),
        ("graph-cold-l2+bits", "BLOCK_K 64", 2499.0, False),  # a config of twice the leader's time
        ("graph-cold-l2+bits", "", None, False),
        ("graph-cold-l2", "BLOCK_K 64", None, False),
    ],
)
def test_bits_are_compared_where_protocol_and_space_say_so(gpu, monkeypatch, protocol_name, order, leader_ns, compares):
    def multiply(kernel, a, b, out):
        out.copy_(a.double() @ b.double())
        out[40:] += kernel.name == "2"

    monkeypatch.setattr(Kernel, "__call__", multiply, raising=False)
    monkeypatch.setattr(gpu, "summation", lambda task, config: order, raising=False)
    gpu.checks, gpu.screened = [RIGHT] * 2, [found(5000.0)] * 2
    bench = bench_on(gpu, protocol_name)
    bench._device, bench._rows = torch.device("cpu"), None
    assert len(bench(job(leader_ns=leader_ns)).estimate.bits) == 16 * compares
    reading = bench(job(2, leader_ns=leader_ns))
    assert reading.reason == "6 of 16 equal rows differ in their bits, by place or neighbours" * compares
    assert reading.status is (Status.WRONG_RESULT if compares else Status.OK)


FLOOR = (PROBLEM.min_bytes - OUTPUT.nbytes * 31 / 32) / TASK.device.memory_bandwidth_gb_s
"""Time of the operands, for the L2 keeps the output and takes it 32 times as fast."""


@pytest.mark.parametrize(
    ("name", "time_ns", "leader_ns", "again"),
    [
        ("graph-cold-l2", FLOOR * 0.99, None, True),
        ("graph-cold-l2", FLOOR * 1.01, None, False),
        ("graph-warm-l2", FLOOR * 0.99, None, False),  # a warm L2 is faster than the memory
        ("graph-cold-l2", 5000.0, 6000.0, True),  # more than 10 % ahead
        ("graph-cold-l2", 5500.0, 6000.0, False),
    ],
)
def test_a_result_too_good_to_be_true_is_checked_and_measured_again(gpu, name, time_ns, leader_ns, again):
    gpu.checks, gpu.screened, gpu.slow_blocks = [RIGHT] * 2, [found(time_ns), found(5200.0, (3.0, 4.0))], []
    reading = bench_on(gpu, name)(job(leader_ns=leader_ns))
    events = [event[0] for event in gpu.events if event[0] in ("rest", "check", "screen")]
    assert events == (["check", "screen", "rest", "check", "screen"] if again else ["check", "screen"])
    assert reading.samples_ns == ((3.0, 4.0, 1.0, 2.0) if again else (1.0, 2.0))
    assert reading.outliers == ((2, 3) if again else ())
    assert reading.estimate.time_ns == (5200.0 if again else time_ns)
    if again:
        assert [event[1] for event in gpu.events if event[0] == "screen"] == [leader_ns, None]


def test_a_result_too_good_to_be_true_may_be_wrong_at_a_second_look(gpu):
    gpu.checks, gpu.screened = [RIGHT, WRONG], [found(FLOOR / 2)]
    reading = bench_on(gpu)(job())
    assert (reading.status, reading.reason, reading.before) == (Status.WRONG_RESULT, "element 3 is 7", STATE)


def test_energy_is_measured_over_the_loop_where_the_protocol_asks_for_it(gpu, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "joules_per_launch", lambda *given: asked.append(given) or 0.25)
    gpu.checks, gpu.screened = [RIGHT], [found(5000.0)]
    assert bench_on(gpu, "graph-cold-l2+energy")(job()).energy_joules == 0.25
    [(replay, launches, seconds, read)] = asked
    assert (replay, launches, seconds) == ("replay", 50, pytest.approx(50 * 5e-6))
    assert read() == 0


def test_the_next_kernel_is_loaded_while_the_gpu_works(gpu):
    bench, jobs = bench_on(gpu), [job(1), job(2), job(3)]
    gpu.checks, gpu.screened = [RIGHT] * 3, [found(5000.0)] * 3
    upcoming = [jobs[1], None, None]
    bench.look_ahead(lambda: upcoming.pop(0))
    for each in jobs:
        bench(each)
    assert [event[1] for event in gpu.events if event[0] == "load"] == ["1", "2", "3"]
    assert gpu.events.index(("load", "2")) < gpu.events.index("timer closed")
    assert [kernel.closed for kernel in gpu.loaded] == [1, 1, 1]


def test_a_kernel_that_was_loaded_ahead_for_another_job_is_not_measured_for_this_one(gpu):
    bench = bench_on(gpu)
    gpu.checks, gpu.screened = [RIGHT] * 2, [found(5000.0)] * 2
    upcoming = [job(2), None]
    bench.look_ahead(lambda: upcoming.pop(0))
    bench(job(1))
    bench(job(3))
    assert [event[1] for event in gpu.events if event[0] == "timer"] == ["1", "3"]


def test_a_final_is_not_loaded_ahead_and_a_kernel_that_does_not_load_fails_in_its_turn(gpu):
    bench = bench_on(gpu)
    gpu.refused = {"2": RuntimeError("no such image\nmore")}
    gpu.checks, gpu.screened = [RIGHT] * 2, [found(5000.0)] * 2
    upcoming = [job(2), FinalJob((job(3),))]
    bench.look_ahead(lambda: upcoming.pop(0))
    assert bench(job(1)).status is Status.OK
    reading = bench(job(2))
    assert (reading.status, reading.reason) == (Status.RUN_FAILED, "RuntimeError: no such image")
    bench(job(1))
    assert ("load", "3") not in gpu.events


def test_an_error_that_leaves_the_gpu_unusable_ends_the_process(gpu):
    gpu.refused, gpu.usable = {"1": RuntimeError("illegal memory access" + "x" * 600)}, False
    last = bench_on(gpu)(job())
    assert isinstance(last, Last)
    assert len(last.result.reason) == 500


def place(number, time_ns):
    return FinalistReading(number, Estimate(time_ns, time_ns, time_ns), (1.0,), (0.0, 0.0))


def test_a_final_ranks_the_kernels_that_are_right(gpu):
    gpu.refused = {"2": RuntimeError("no such image")}
    gpu.checks, gpu.finals = [RIGHT, WRONG, RIGHT], [(place(1, 4000.0), place(0, 5000.0))]
    reading = bench_on(gpu)(FinalJob(tuple(job(number) for number in (1, 2, 3, 4))))
    assert reading.failed == ((1, "RuntimeError: no such image"), (2, "element 3 is 7"))
    assert [(each.number, each.estimate.time_ns, each.estimate.level) for each in reading.ranking] == [
        (3, 4000.0, LEVEL),
        (0, 5000.0, LEVEL),
    ]
    assert ("final", 2, True) in gpu.events
    assert [event[2] for event in gpu.events if event[0] == "timer"] == ["run", "run"]
    assert gpu.events.count("timer closed") == 2
    assert [kernel.closed for kernel in gpu.loaded if kernel.name in "14"] == [1, 1]


def test_finalists_below_what_the_memory_allows_are_dropped_and_the_rest_ranked_again(gpu):
    gpu.checks = [RIGHT] * 3
    gpu.finals = [(place(0, FLOOR / 2), place(2, 4000.0), place(1, 5000.0)), (place(0, 5000.0), place(1, 6000.0))]
    reading = bench_on(gpu)(FinalJob((job(1), job(2), job(3))))
    [(number, reason)] = reading.failed
    assert number == 0
    assert "below the device's floor" in reason
    assert [each.number for each in reading.ranking] == [1, 2]
    assert [kernel.closed for kernel in gpu.loaded] == [1, 1, 1]


@pytest.mark.parametrize(("l2_bytes", "is_ranked"), [(OUTPUT.nbytes, True), (OUTPUT.nbytes // 2, False)])
def test_outputs_count_against_a_time_only_as_far_as_the_l2_cannot_keep_them(gpu, l2_bytes, is_ranked):
    task = replace(TASK, device=replace(TASK.device, l2_bytes=l2_bytes))
    gpu.checks, gpu.finals = [RIGHT], [(place(0, FLOOR * 1.01),)]
    reading = bench_on(gpu)(FinalJob((replace(job(), task=task),)))
    assert [each.number for each in reading.ranking] == [0] * is_ranked
    assert len(reading.failed) == 1 - is_ranked


def test_a_final_of_wrong_kernels_ranks_none_and_one_that_breaks_the_gpu_ends_it(gpu):
    gpu.checks = [WRONG]
    assert bench_on(gpu)(FinalJob((job(1),))).ranking == ()
    gpu.refused, gpu.usable, gpu.checks = {"2": RuntimeError("illegal memory access")}, False, [RIGHT]
    assert isinstance(bench_on(gpu)(FinalJob((job(1), job(2)))), Last)


def test_a_space_is_looked_up_once(gpu, monkeypatch):
    bench, asked = bench_on(gpu), []
    bench._spaces = {}
    monkeypatch.setattr(registry, "space", lambda name: asked.append(name) or gpu)
    gpu.checks, gpu.screened = [RIGHT] * 2, [found(5000.0)] * 2
    bench(job(1))
    bench(job(2))
    assert asked == ["toy"]
