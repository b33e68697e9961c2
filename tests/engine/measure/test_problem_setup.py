from __future__ import annotations

import time

import pytest

from gemmtune.engine.measure.deciding.duty_cycle import DUTY
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import ReferenceLevel

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cuda.bindings", reason="cuda-bindings is not installed")

from gemmtune.engine.measure.operands.operand_memory import OperandMemory  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.operand_sets import OperandSets, reference_kernel  # noqa: E402 (as above)
from gemmtune.engine.measure.problem_setup import _OPERAND_SHARES, ProblemSetup, _sizes  # noqa: E402 (as above)

PROBLEM = Problem.parse("64x48x80")
LEVEL = ReferenceLevel("torch 2.13.0", "GPU-0", 1000.0)


CPU = torch.device("cpu")
MEMORY = OperandMemory(CPU, [], list)
SETS = OperandSets.make(PROBLEM, True, 1, 1 << 20, MEMORY)


@pytest.fixture
def setup():
    return ProblemSetup(PROBLEM, SETS, LEVEL)


def test_the_first_nominal_time_is_the_level_beside_itself(setup):
    assert setup.drift.nominal_ns == 1000.0


def test_the_nominal_time_is_the_median_beside_the_first_candidates(setup):
    for level in (1020.0, 1300.0, 1040.0):
        setup.add_reference_times([level] * 8)
    assert setup.drift.nominal_ns == 1040.0
    for _ in range(13):
        setup.add_reference_times([1050.0] * 8)
    for _ in range(100):
        setup.add_reference_times([2000.0] * 8)
    assert setup.drift.nominal_ns == 1050.0


def test_the_references_scatter_is_learned_from_the_candidates():
    setup = ProblemSetup(PROBLEM, SETS, ReferenceLevel("torch 2.13.0", "GPU-0", 10_000.0))
    assert setup.drift.reference_scatter == 0.03  # until it is known
    for level in (9_000.0, 9_500.0, 10_000.0, 10_500.0, 11_000.0, 10_000.0, 9_800.0):
        setup.add_reference_times([level] * 8)
    assert setup.drift.nominal_ns == 10_000.0
    assert setup.drift.reference_scatter == pytest.approx(1.4826 * 0.05, rel=0.05)


def test_single_launches_do_not_count_towards_the_nominal_time(setup):
    setup.add_reference_times([1500.0] * 3)
    assert setup.drift.nominal_ns == 1000.0
    setup.add_reference_times([1500.0] * 3 + [1030.0] * 8)
    assert setup.drift.nominal_ns == 1030.0


def test_a_check_covers_each_operand_set(setup):
    def right(a, b, out):
        out.copy_((a.double() @ b.double()).to(out.dtype))

    def leaves_a_row(a, b, out):
        out[1:] = (a[1:].double() @ b.double()).to(out.dtype)

    assert [setup.check(right, number).reason for number in (0, 1, -1)] == ["", "", ""]
    assert "NaN or were not written" in setup.check(leaves_a_row, 0).reason


@pytest.mark.parametrize(("dtype", "missing"), [("int8", "were not written"), ("e4m3", "are NaN or were not written")])
def test_an_unwritten_output_of_8_bit_operands_is_caught_on_every_launch(dtype, missing):
    problem = Problem.parse(f"64x48x80:{dtype}:nt")
    setup = ProblemSetup(problem, OperandSets.make(problem, True, 1, 1 << 20, MEMORY), LEVEL)

    def right(a, b, out):
        out.copy_((a.double() @ b.double()).to(out.dtype))

    def leaves_a_row(a, b, out):
        out[1:] = (a[1:].double() @ b.double()).to(out.dtype)

    assert [setup.check(kernel, 0).reason for kernel in (right, leaves_a_row, right)] == [
        "",
        f"48 of 3072 output elements {missing}",
        "",
    ]


def test_however_many_kinds_of_values_there_are_their_regions_leave_a_quarter_of_the_memory(monkeypatch):
    total, taken = 140 << 30, []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (total - sum(taken), total))
    for _ in range(10):
        taken += _sizes(torch.device("cuda", 0), _OPERAND_SHARES)[:1]
    assert taken[:2] == [total // 4] * 2
    assert sum(taken) <= 0.75 * total


def test_the_gpu_is_warmed_up_before_its_first_problem_and_calibrated_for_each(monkeypatch):
    from types import SimpleNamespace

    from gemmtune.engine.measure import problem_setup as module

    events, levels = [], []

    class Timer:
        def __init__(self, kernel, timing):
            assert kernel is reference_kernel

        def block(self, number):
            return SimpleNamespace(samples_ns=(90.0,), reference_ns=(110.0,), busy_ns=2e5)

        def close(self):
            events.append("close")

    class WarmUp:
        done = False

        def __init__(self, now):
            events.append("warm up")

        def add(self, level_ns, now):
            levels.append(level_ns)
            self.done = len(levels) == 3

    monkeypatch.setattr(module, "KernelTimer", Timer)
    monkeypatch.setattr(module, "WarmUp", WarmUp)
    monkeypatch.setattr(time, "sleep", events.append)
    cache = module.SetupCache.__new__(module.SetupCache)
    cache._warmed_up, cache._rest = False, "rest"
    timing = SimpleNamespace(calibrate=lambda rest: events.append(f"calibrate with {rest}"))
    assert cache._reference_level_ns(timing) == pytest.approx(100)
    pause = pytest.approx(min(5e-3, 2e-4 / DUTY))
    assert events == ["warm up", "calibrate with rest", *[pause] * 8, "close"]
    assert levels == [pytest.approx(100)] * 3
    events.clear()
    cache._reference_level_ns(timing)
    assert events[0] == "calibrate with rest"
