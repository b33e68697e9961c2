"""Operators built on CPUs, run on the GPU that is here."""

from __future__ import annotations

from typing import Any

import pytest

from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.toolchain import vendor_gemm as vendor
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.spaces.aten import AtenSpace
from gemmtune.spaces.cute_gemm import CuteGemmSpace

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cutlass.operators", reason="nvidia-cutlass-operators is not installed")

from gemmtune.engine.measure.operands.operands import make_operands  # noqa: E402 (it imports torch)
from gemmtune.engine.measure.operands.reference import ReferenceResult, poison  # noqa: E402 (as above)

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[cute]"),
    pytest.mark.timeout(300),
]

SPACE = CuteGemmSpace()


def sample(task, count):
    """A seed, and points spread over the operators and shapes."""
    feasible = [config for config in SPACE.points(task) if SPACE.check(task, config)]
    return [SPACE.seeds(task)[0], *feasible[:: max(1, len(feasible) // count)]]


@pytest.fixture(
    params=["1000x1024x520:bf16:nt", "520x264x1021:fp16:tn", "520x272x1040:e4m3:nt", "520x272x1040:int8:nt"]
)
def task(request):
    return Task(Problem.parse(request.param), present_device(), "cute_gemm")


def test_a_kernel_is_right_on_every_set_of_operands(task, tmp_path):
    sets: list[Any] = [make_operands(task.problem, torch.device("cuda"), number) for number in range(2)]
    for config in sample(task, 6):
        kernel = SPACE.load(SPACE.build(task, config, tmp_path), task)
        for operands in sets:
            poison(operands.out)
            kernel(operands.a, operands.b, operands.out)
            torch.cuda.synchronize()
            comparison = ReferenceResult(task.problem, operands).check(operands.out)
            assert not comparison.reason, (config, comparison)
        kernel.close()


def allocations():
    """Return the number of requests for device memory to torch's allocator."""
    return torch.cuda.memory_stats()["allocation.all.allocated"]


def test_a_launch_can_be_captured_allocates_nothing_and_runs_on_the_current_stream(task, tmp_path):
    operands: Any = make_operands(task.problem, torch.device("cuda"))
    reference = ReferenceResult(task.problem, operands)
    for config in sample(task, 3):
        kernel = SPACE.load(SPACE.build(task, config, tmp_path), task)
        kernel(operands.a, operands.b, operands.out)  # loads the cubin
        torch.cuda.synchronize()
        held = allocations()
        kernel(operands.a, operands.b, operands.out)
        assert allocations() == held
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            kernel(operands.a, operands.b, operands.out)
        poison(operands.out)
        torch.cuda.synchronize()
        assert "were not written" in reference.check(operands.out).reason  # captured, not run
        graph.replay()
        torch.cuda.synchronize()
        assert not reference.check(operands.out).reason, config
        del graph
        kernel.close()


def test_the_device_record_has_the_cluster_counts_of_the_driver():
    import cutlass.utils

    device = present_device()
    if not device.has_clusters:
        pytest.skip("no clusters before Hopper")
    torch.zeros(1, device="cuda")  # makes a context
    hardware = cutlass.utils.HardwareInfo()
    told = {size: hardware.get_max_active_clusters(size) for size in (1, 2, 4, 8, 16)}
    assert dict(device.active_clusters) == {size: clusters for size, clusters in told.items() if clusters}


@pytest.mark.parametrize(
    ("problem", "entry"),
    [
        ("256x512x1024:e4m3:nt", "aten::_scaled_mm"),
        ("256x512x16384:e4m3:nt:out_dtype=fp32", "aten::_scaled_mm"),  # long sums, of which Hopper keeps 14 bits
        ("256x512x1024:int8:nt", "aten::_int_mm"),
        ("256x512x1024:bf16:nt:out_dtype=fp32", "aten::mm"),
        ("256x512x1024:e5m2:nt", ""),
        ("16x512x1024:int8:nt", ""),
    ],
)
def test_the_bench_times_it_with_the_vendors_kernel_or_a_replacement(problem, entry, tmp_path):
    from gemmtune.engine.measure.bench import Bench

    of = {space: Task(Problem.parse(problem), present_device(), space) for space in ("aten", "cute_gemm")}
    assert (vendor.operator_name(of["aten"].problem) if vendor.supports(of["aten"].problem) else "") == entry
    bench, readings = Bench(protocol("graph-cold-l2")), {}
    for space in (AtenSpace(), SPACE) if entry else (SPACE,):
        one = of["aten" if isinstance(space, AtenSpace) else "cute_gemm"]
        for config in space.seeds(one)[:2]:
            reading = bench(MeasureJob(one, config, space.build(one, config, tmp_path)))
            assert (reading.status, reading.reason) == (Status.OK, ""), (one.key, config)
            assert len(reading.samples_ns) >= 8
            assert 0.5 < reading.drift < 2
            readings[one.space] = reading
    assert readings["cute_gemm"].error_norm < 8e-3
