"""Kernels of QuACK with a bias and an epilogue, measured and checked by a worker's bench on the GPU that is here."""

from __future__ import annotations

import pytest

from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import BuildError
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.spaces.quack_gemm import QuackGemmSpace

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("quack", reason="quack-kernels is not installed")

DEVICE = present_device()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        DEVICE is None or DEVICE.arch not in ("sm_90a", "sm_100a"),
        reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]",
    ),
    pytest.mark.timeout(400),
    # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

SPACE = QuackGemmSpace()


def config(tile_m, tile_n, cluster_m=1, cluster_n=1, **flags):
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "cluster_m": cluster_m, "cluster_n": cluster_n}
    flags = {"pingpong": False, "swap_ab": False, "is_dynamic_persistent": False} | flags
    return Config({**sizes, **flags, "max_swizzle_size": 8})


CONFIGS = {
    "sm_90a": [
        config(128, 192, 2, 1, pingpong=True),
        config(256, 128, 1, 2),
        config(128, 256, 2, 1),
        config(128, 128, 1, 2, pingpong=True, swap_ab=True),
        config(256, 128, 2, 1, swap_ab=True),
    ],
    "sm_100a": [
        config(256, 256, 2, 1, is_dynamic_persistent=True),
        config(128, 128, 1, 2),
        config(128, 64, 2, 2, swap_ab=True, is_dynamic_persistent=True),
    ],
}

EVERY_KIND = "591x1032x1024:bf16:nn:addmm:epilogue=mul(column).add(matrix).mul(row).add(matrix2[fp32]).to(fp32)"
# Beside its two matrices, one of them fp32, shared memory holds one stage of A and B in each of these.
ONE_STAGE = {(EVERY_KIND, config(128, 256, 2, 1)), (EVERY_KIND, config(256, 128, 2, 1, swap_ab=True))}


@pytest.fixture(scope="module")
def bench():
    from gemmtune.engine.measure.bench import Bench

    return Bench(protocol("graph-cold-l2"))


@pytest.mark.parametrize(
    "problem",
    [
        "2048x4096x1024:bf16:nt:addmm:epilogue=gelu",
        "1500x5120x1280:bf16:nt:addmm:epilogue=gelu",
        "2048x8192x2048:bf16:nt:epilogue=mul(matrix.silu)",
        "512x3072x1024:bf16:nt:epilogue=mul(matrix.silu)",
        "4096x1280x2048:bf16:nt:epilogue=add(matrix).relu",
        "2048x1024x1024:bf16:nt:addmm",
        "591x1024x4096:bf16:nt:addmm",
        "592x1032x520:fp16:tn:addmm:bias=matrix",
        "512x2880x2880:bf16:nt:epilogue=mul(row)",
        "512x2048x2048:bf16:nt:epilogue=mul(0.5).to(fp32)",
        EVERY_KIND,
        "2048x4096x1024:bf16:nt:addmm:epilogue=gelu+x",
        "591x1032x1024:bf16:nt:epilogue=mul(matrix.silu).to(fp32)+x",
        "591x1032x1024:bf16:nt:addmm:bias=matrix:epilogue=maximum(matrix).sigmoid.mul(x)",
    ],
)
def test_a_kernel_computes_bias_and_epilogue(problem, bench, tmp_path):
    task = Task(Problem.parse(problem), DEVICE, "quack_gemm")
    for candidate in CONFIGS[DEVICE.arch]:
        assert SPACE.check(task, candidate)
        if (problem, candidate) in ONE_STAGE:
            with pytest.raises(BuildError, match="holds 1 of the 2 needed stages of A and B"):
                SPACE.build(task, candidate, tmp_path)
            continue
        reading = bench(MeasureJob(task, candidate, SPACE.build(task, candidate, tmp_path)))
        assert (reading.status, reading.reason) == (Status.OK, ""), candidate
