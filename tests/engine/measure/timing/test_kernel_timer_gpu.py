"""The timing protocol on a real GPU: what it must see whatever the GPU is."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.statistics import estimate
from gemmtune.engine.toolchain.gpu_info import present_device

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
]

TILE = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")


@pytest.fixture(scope="module")
def bench():
    """Return a function that makes a bench of a protocol."""
    from gemmtune.engine.measure.bench import Bench

    return lambda name: Bench(protocol(name))


def timers(bench, problem, kernels):
    """A timer for each kernel of one problem, each launched once."""
    parsed = Problem.parse(problem)
    operands = bench._setups.get(parsed).sets.kernel[0]
    for kernel in kernels:
        kernel(operands.a, operands.b, operands.out)
    return [bench._setups.timer(kernel, parsed) for kernel in kernels]


def middle(timer, blocks=5):
    return estimate([sample for number in range(blocks) for sample in timer.block(number).samples_ns]).time_ns


def test_the_level_of_a_short_reference_excludes_the_fixed_cost(bench):
    import torch

    cold, problem = bench("graph-cold-l2"), "2x2048x192"
    (vendor,) = timers(cold, problem, [partial(mm, torch)])
    level_ns = cold._setups.get(Problem.parse(problem)).level.time_ns
    assert level_ns == pytest.approx(middle(vendor), abs=1000)  # events cost 4 µs


def test_an_empty_kernel_takes_no_time_and_the_reference_its_nominal_time(bench):
    import torch

    cold = bench("graph-cold-l2")
    empty, vendor = timers(
        cold, "2048x2048x2048", [lambda *_: cold._setups._context.helpers.empty(), partial(mm, torch)]
    )
    assert middle(empty) < 1500
    assert middle(vendor) == pytest.approx(cold._setups.get(Problem.parse("2048x2048x2048")).drift.nominal_ns, rel=0.1)
    block = vendor.block(0)
    assert len(block.samples_ns) == len(block.reference_ns) == 8
    assert len(vendor.single().samples_ns) == 1


@pytest.mark.parametrize(("problem", "launches"), [("2x2048x192", 8), ("4096x4096x4096", 1)])
@pytest.mark.parametrize("name", ["graph-cold-l2", "graph-warm-l2"])
def test_runs_and_single_launches_of_short_kernels_take_equal_times(bench, name, problem, launches):
    import torch

    setups, parsed = bench(name)._setups, Problem.parse(problem)
    run = setups.final_run(parsed)
    assert run.launches == launches

    def nothing(*_):
        setups._context.helpers.empty()

    for kernel, least_ns in ((partial(mm, torch), 100), (nothing, 0)):
        in_runs, one_by_one = setups.timer(kernel, parsed, run), setups.timer(kernel, parsed)
        assert in_runs.block(0).run == launches
        assert least_ns <= middle(in_runs) == pytest.approx(middle(one_by_one), abs=1000, rel=0.1)


def test_twice_the_work_takes_twice_as_long(bench):
    import torch

    def twice(a, b, out):
        mm(torch, a, b, out)
        mm(torch, a, b, out)

    once, both = timers(bench("graph-warm-l2"), "4096x4096x1024", [partial(mm, torch), twice])
    assert middle(both) / middle(once) == pytest.approx(2, rel=0.25)


def test_operands_in_l2_are_faster_than_operands_in_memory(bench):
    import torch

    (cold,) = timers(bench("graph-cold-l2"), "16x2048x2048", [partial(mm, torch)])
    (warm,) = timers(bench("graph-warm-l2"), "16x2048x2048", [partial(mm, torch)])
    assert middle(warm) < 0.9 * middle(cold)


def test_kernels_take_equal_times_alternating_and_alone(bench):
    import torch

    def triangle(a, b, out):  # elementwise, so without clusters, which the vendor's GEMM has on Hopper
        torch.triu(out, out=out)

    both = timers(bench("graph-cold-l2"), "2048x2048x2048", [partial(mm, torch), triangle])
    alone = [middle(timer) for timer in both]
    alternating = [[], []]
    for number in range(6):
        for samples, timer in zip(alternating, both, strict=True):
            samples.extend(timer.block(number).samples_ns)
    for samples, time_ns in zip(alternating, alone, strict=True):
        assert sorted(samples)[len(samples) // 2] == pytest.approx(time_ns, rel=0.2)
        assert min(samples) > 0.5 * time_ns


def test_a_kernel_that_reuses_the_handle_of_another_is_the_one_that_runs(bench, tmp_path):
    device, space = present_device(), registry.space("triton_mm")
    task = Task(Problem.parse("1024x1024x1024"), device, "triton_mm")
    tiles = ((128, 128, 64, 8, 4, 4), (64, 64, 64, 8, 3, 4), (16, 16, 16, 8, 1, 1))
    configs = [Config(dict(zip(TILE, values, strict=True))) for values in tiles]
    jobs = [MeasureJob(task, config, space.build(task, config, tmp_path)) for config in configs]
    cold = bench("graph-cold-l2")
    first, *again = [[cold(job).estimate.time_ns for job in jobs] for _ in range(6)]  # unloaded before the next comes
    for times in again:
        assert times == pytest.approx(first, rel=0.2)
    for _ in range(6):
        for job, time_ns in zip(jobs, first, strict=True):  # some are out before a graph of theirs is launched
            assert cold(replace(job, early_stopping=True)).estimate.time_ns > 0.8 * time_ns


def test_an_error_while_launches_are_enqueued_leaves_the_stream_open(bench):
    import torch

    def fails(a, b, out):
        raise RuntimeError("no launch")

    cold = bench("graph-cold-l2")
    good, _ = timers(cold, "64x512x256", [partial(mm, torch), partial(mm, torch)])
    bad = cold._setups.timer(fails, Problem.parse("64x512x256"))
    for attempt in (bad.single, partial(bad.block, 0)):
        with pytest.raises(RuntimeError, match="no launch"):
            attempt()
    assert middle(good, 1) > 0


def mm(torch, a, b, out):
    torch.mm(a, b, out=out)


def test_an_impossible_finalist_fails_and_the_others_repeat_the_final(bench, tmp_path):
    device, space = present_device(), registry.space("triton_mm")
    task = Task(Problem.parse("1024x1024x1024"), device, "triton_mm")
    configs = [
        Config(dict(zip(TILE, values, strict=True))) for values in ((128, 128, 64, 8, 4, 4), (16, 16, 16, 8, 1, 1))
    ]
    artifacts = [space.build(task, config, tmp_path) for config in configs]
    cold = bench("graph-cold-l2")

    def final(of):
        return cold(FinalJob(tuple(MeasureJob(of, c, a) for c, a in zip(configs, artifacts, strict=True))))

    both = final(task)
    assert [finalist.number for finalist in both.ranking] == [0, 1]
    fast, slow = (finalist.estimate.time_ns for finalist in both.ranking)
    assert slow > 2 * fast
    moved = task.problem.min_bytes - 2 * 1024**2 * 31 / 32  # the L2 keeps the output, and takes it 32 times as fast
    memory = round(moved / (fast * slow) ** 0.5)  # with this bandwidth only the slow one is possible
    one = final(replace(task, device=replace(device, memory_bandwidth_gb_s=memory)))
    assert [finalist.number for finalist in one.ranking] == [1]
    assert [number for number, _ in one.failed] == [0]
    assert "below the device's floor" in one.failed[0][1]
