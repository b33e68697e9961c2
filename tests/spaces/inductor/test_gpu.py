"""Inductor's kernels of every operation, built on CPUs, run on the GPU that is here."""

from __future__ import annotations

import pytest

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain import vendor_gemm as vendor
from gemmtune.engine.toolchain.gpu_info import present_device

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(present_device() is None, reason="needs a CUDA GPU and gemmtune[triton]"),
    pytest.mark.timeout(300),
]

UNUSUAL = [
    "520x264x1024:bf16:nt:lda=1536:ldb=1032",
    "520x264x1021:bf16:nn:lda=1027:ldb=265",
    "520x264x1024:bf16:tn:lda=544:epilogue=silu.mul(matrix)",
    "8x3200x512:bf16:nn:lda=65536",
    "5x200x264x1024:bf16:nt:bmm:lda=3072:batch_stride_b=0",
    "5x200x64x128:fp16:nn:bmm:lda=640:batch_stride_a=128:batch_stride_b=8200",
    "520x264x1024:bf16:nt:addmm:alpha=0.5:beta=2",
    "520x264x1024:bf16:nt:addmm:bias=matrix:alpha=-2:lda=1032:epilogue=relu",
    *(f"5x200x264x1024:bf16:nt:baddbmm:bias={bias}" for bias in ("vector", "vectors", "matrix", "matrices")),
    "520x264x1024:bf16:nt:addmm:beta=0",
    "5x200x264x1024:bf16:nt:baddbmm:alpha=0.125:beta=0",
    "512x264x1024:bf16:nt:epilogue=mul(gate[128]).add(matrix)",
    "520x264x1024:bf16:nt:addmm:epilogue=silu.mul(gate[100,fp32]).add(matrix)",
    "512x264x1024:bf16:nt:epilogue=mul(gate[64]):dynamic_m=true",
    "5x200x264x1024:fp16:nn:baddbmm:alpha=0.125:beta=0.5:batch_stride_a=0:epilogue=mul(matrix)",
]
"""Problems of views, of scalars, of batches with a bias, and of gates."""
KERNELS = [
    ("triton_mm", "520x264x1021:bf16:nt:addmm"),
    ("triton_mm", "520x264x1024:fp16:tn:addmm:bias=matrix"),
    ("triton_mm", "130x514x1026:fp32:nn:addmm"),
    ("triton_mm", "16x4096x4096:bf16:nt:addmm"),
    ("triton_mm", "5x200x264x1021:bf16:nt:bmm"),
    ("triton_mm", "32x128x128x512:fp16:tt:bmm"),
    ("triton_mm", "520x264x1021:bf16:nt:dynamic_m=true"),
    ("triton_mm", "520x264x1024:bf16:tt:addmm:dynamic_m=true"),
    ("triton_mm", "5x200x264x1024:bf16:nn:bmm:dynamic_m=true"),
    ("triton_mm", "520x264x1024:bf16:nt:epilogue=silu.mul(matrix).add(row)"),
    ("triton_mm", "130x514x1026:fp16:nn:epilogue=mul(column[fp32]).to(fp32)"),
    ("triton_mm", "16x4096x4096:bf16:nt:addmm:epilogue=gelu_tanh+x"),
    ("triton_mm", "5x200x264x1024:bf16:nt:bmm:epilogue=mul(matrix).add(scalar)"),
    ("triton_mm", "5x200x264x1024:bf16:nt:bmm:epilogue=add(rows).relu"),
    ("triton_mm", "520x264x1024:bf16:nt:addmm:bias=matrix:epilogue=relu:dynamic_m=true"),
    ("triton_mm", "256x512x1024:bf16:nt:epilogue=gelu_backward(matrix)"),
    ("triton_mm", "256x512x1024:bf16:nt:epilogue=matrix[bool].where(0,x).mul(matrix2[t])"),
    *((space, problem) for space in ("triton_mm", "aten") for problem in UNUSUAL),
    *(
        (space, f"{p}:out_dtype=fp32")
        for space in ("triton_mm", "aten")
        for p in ("520x264x1021:bf16:nt", "5x200x264x1024:fp16:nn:bmm")
    ),
    ("triton_mm", "520x264x1024:bf16:nt:out_dtype=fp32:epilogue=add(matrix).to(bf16)"),
    ("decompose_k", "32x32x65536:bf16:nn"),
    ("decompose_k", "16x1024x24576:fp16:tn"),
    ("decompose_k", "64x64x16384:tf32:nt"),
    ("decompose_k", "64x48x16384:fp32:tt:lda=80"),
    ("decompose_k", "8x64x4096:bf16:nt:lda=8192"),
    ("aten", "520x264x1024:bf16:nt:epilogue=silu.mul(matrix).add(row)"),
    ("aten", "16x4096x4096:bf16:nt:addmm:epilogue=gelu+x"),
    ("aten", "5x200x264x1024:bf16:nt:bmm:epilogue=mul(rows)"),
    ("aten", "5x200x264x1024:bf16:nt:bmm:epilogue=mul(matrix[t]).add(scalar).to(fp32)"),
]


def task(space, problem):
    return Task(Problem.parse(problem), present_device(), space)


def sample(target, count):
    """The first seed, and points spread over the tiles."""
    space = registry.space(target.space)
    feasible = [config for config in space.points(target) if space.check(target, config)]
    return [*space.seeds(target)[:1], *feasible[:: max(1, len(feasible) // count)]]


def loaded(target, config, folder):
    space = registry.space(target.space)
    return space.load(space.build(target, config, folder), target)


def check(kernel, problem, numbers=(0, 1)):
    """Launch on several sets of operands, outputs poisoned, and compare each."""
    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison

    for number in numbers:
        operands = make_operands(problem, torch.device("cuda"), number)
        for out in operands.outputs:
            poison(out)
        kernel(*operands.arguments)
        torch.cuda.synchronize()
        assert ReferenceResult(problem, operands).check(*operands.outputs).reason == ""


@pytest.mark.parametrize(("space", "problem"), KERNELS)
def test_a_kernel_is_right_on_every_set_of_operands(space, problem, tmp_path):
    target = task(space, problem)
    for config in sample(target, 8):
        kernel = loaded(target, config, tmp_path)
        check(kernel, target.problem)
        kernel.close()


@pytest.mark.parametrize(("space", "problem"), KERNELS)
def test_a_launch_can_be_captured_and_allocates_nothing(space, problem, tmp_path):
    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison

    target = task(space, problem)
    operands = make_operands(target.problem, torch.device("cuda"))
    reference = ReferenceResult(target.problem, operands)
    kernel = loaded(target, sample(target, 1)[0], tmp_path)
    kernel(*operands.arguments)
    torch.cuda.synchronize()
    held = torch.cuda.memory_stats()["allocation.all.allocated"]
    kernel(*operands.arguments)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == held
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        kernel(*operands.arguments)
    for out in operands.outputs:
        poison(out)
    torch.cuda.synchronize()
    assert "were not written" in reference.check(*operands.outputs).reason  # captured, not run
    graph.replay()
    torch.cuda.synchronize()
    assert reference.check(*operands.outputs).reason == ""
    del graph
    kernel.close()


@pytest.mark.parametrize("more", ["", ":addmm", ":addmm:bias=matrix"])
@pytest.mark.parametrize("layout", ["nt", "tn"])
def test_one_binary_serves_every_value_of_a_dynamic_m(more, layout, tmp_path):
    space = registry.space("triton_mm")
    targets = [task("triton_mm", f"{m}x264x520:bf16:{layout}{more}:dynamic_m=true") for m in (512, 2, 17, 64, 65, 1000)]
    config = Config({"BLOCK_M": 64, "BLOCK_N": 32, "BLOCK_K": 64, "GROUP_M": 8, "num_stages": 3, "num_warps": 4})
    artifact = space.build(targets[0], config, tmp_path)
    for target in targets:
        assert space.artifact_key(target, config) == artifact.key
        kernel = space.load(artifact, target)
        check(kernel, target.problem)
        kernel.close()


@pytest.mark.parametrize(
    ("space", "problem"),
    [
        ("triton_mm", "2048x4096x4096:bf16:nt:addmm"),
        ("triton_mm", "2048x4096x4096:bf16:nt:addmm:bias=matrix"),
        ("triton_mm", "16x512x512x128:bf16:nn:bmm"),
        ("triton_mm", "16x512x512x128:bf16:nn:bmm:lda=1024:batch_stride_b=0"),
        ("triton_mm", "16x512x512x128:bf16:nt:baddbmm:alpha=0.125"),
        ("triton_mm", "2048x4096x4096:bf16:nt:dynamic_m=true"),
        ("triton_mm", "16x4096x4096:bf16:nt:dynamic_m=true"),
    ],
)
def test_the_bench_times_it_with_the_vendors_kernel(space, problem, tmp_path):
    from gemmtune.engine.measure.bench import Bench

    target, baseline = task(space, problem), task("aten", problem)
    assert vendor.supports(target.problem)
    bench, jobs = Bench(protocol("graph-cold-l2")), []
    for one in (baseline, target):
        its = registry.space(one.space)
        jobs += [MeasureJob(one, config, its.build(one, config, tmp_path)) for config in its.seeds(one)[:2]]
    for job in jobs:
        reading = bench(job)
        assert (reading.status, reading.reason) == (Status.OK, ""), (job.task.key, job.config)
        assert len(reading.samples_ns) >= 8
        assert 0.5 < reading.drift < 2
    final = bench(FinalJob(tuple(jobs)))
    assert (len(final.ranking), final.failed) == (len(jobs), ())


class Busy:
    """A kernel that keeps the GPU busy for so many clock cycles."""

    def __init__(self, cycles):
        self.cycles, self.closed = cycles, False

    def __call__(self, *_):
        torch.cuda._sleep(self.cycles)

    def close(self):
        self.closed = True


@pytest.mark.parametrize("fastest", [0, 1, 2])
def test_the_fastest_variant_of_a_pointwise_kernel_runs_and_the_others_are_closed(fastest):
    from gemmtune.spaces.inductor.pointwise import _fastest

    variants = [Busy(100_000 if place == fastest else 2_000_000 + place) for place in range(3)]
    assert _fastest(variants, ()) is variants[fastest]
    assert [each.closed for each in variants] == [place != fastest for place in range(3)]
