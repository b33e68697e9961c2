"""Operators built on CPUs, run on the GPU that is here."""

from __future__ import annotations

import pytest

from gemmtune.engine.measure.gpu import present_device
from gemmtune.engine.measure.operands import make_operands
from gemmtune.engine.measure.reference import Reference
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute_gemm import CuteGemmSpace

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("cutlass.operators", reason="nvidia-cutlass-operators is not installed")

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


@pytest.fixture(params=["1000x1024x520:bf16:nt", "520x264x1021:fp16:tn"])
def task(request):
    return Task(Problem.parse(request.param), present_device(), "cute_gemm")


def test_a_kernel_is_right_on_every_set_of_operands(task, tmp_path):
    sets = [make_operands(task.problem, torch.device("cuda"), number) for number in range(2)]
    for config in sample(task, 6):
        kernel = SPACE.load(SPACE.build(task, config, tmp_path), task)
        for operands in sets:
            operands.out.fill_(float("nan"))
            kernel(operands.a, operands.b, operands.out)
            torch.cuda.synchronize()
            comparison = Reference(task.problem, operands).compare(operands.out)
            assert not comparison.reason, (config, comparison)
        kernel.close()


def test_a_launch_can_be_captured_allocates_nothing_and_runs_on_the_current_stream(task, tmp_path):
    operands = make_operands(task.problem, torch.device("cuda"))
    reference = Reference(task.problem, operands)
    for config in sample(task, 3):
        kernel = SPACE.load(SPACE.build(task, config, tmp_path), task)
        kernel(operands.a, operands.b, operands.out)  # loads the cubin
        torch.cuda.synchronize()
        held = torch.cuda.memory_allocated()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            kernel(operands.a, operands.b, operands.out)
        assert torch.cuda.memory_allocated() == held
        operands.out.fill_(float("nan"))
        torch.cuda.synchronize()
        assert bool(operands.out.isnan().all())  # captured, not run
        graph.replay()
        torch.cuda.synchronize()
        assert not reference.compare(operands.out).reason, config
        del graph
        kernel.close()


def test_the_record_promises_no_more_clusters_than_the_driver_finds_room_for(task):
    import cutlass.utils

    torch.zeros(1, device="cuda")  # makes a context
    hardware = cutlass.utils.HardwareInfo()
    for size in (1, 2, 4, 8):
        assert task.device.max_active_clusters(size) <= hardware.get_max_active_clusters(size), size
