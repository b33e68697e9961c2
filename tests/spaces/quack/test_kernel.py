"""A loaded kernel: what a launch passes, and on a GPU what comes out."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import patch

import pytest

from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.spaces.quack_gemm import QuackGemmSpace

pytestmark = [  # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

SPACE = QuackGemmSpace()
DEVICE = present_device()
ON_GPU = DEVICE is not None and DEVICE.arch in ("sm_90a", "sm_100a")
needs_gpu = pytest.mark.skipif(not ON_GPU, reason="needs a GPU of sm_90a or sm_100a and gemmtune[triton,cute]")
PROBLEMS = ["520x1032x512:bf16:nt", "16x4096x2048:fp16:tn:out_dtype=fp32"]  # no tile fits the first


def config(tile_m, tile_n, cluster_m=1, cluster_n=1, swizzle=8, **flags):
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "cluster_m": cluster_m, "cluster_n": cluster_n}
    flags = {"pingpong": False, "swap_ab": False, "is_dynamic_persistent": False} | flags
    return Config({**sizes, **flags, "max_swizzle_size": swizzle})


CONFIGS = {
    "sm_90a": [
        config(128, 192, 2, 1, pingpong=True),
        config(256, 128, 1, 2, swap_ab=True, swizzle=4),
        config(64, 16, pingpong=True, swap_ab=True),
        config(64, 32, 2, 2),
        config(192, 128),
    ],
    "sm_100a": [
        config(256, 256, 2, 1, is_dynamic_persistent=True),
        config(128, 64, 2, 2, swap_ab=True, swizzle=4),
        config(128, 16, swap_ab=True, is_dynamic_persistent=True),
        config(64, 128, 1, 2),
        config(256, 512, 2, 1),
    ],
}


@pytest.fixture
def passed():
    """Return the arguments that our launch and QuACK's hand to the compiled function."""
    pytest.importorskip("quack", reason="quack-kernels is not installed")
    from quack import gemm as dispatch
    from quack import gemm_interface as interface
    from quack.gemm_config import GemmConfig

    from gemmtune.spaces.cute import artifact as binary

    def of(task, config, a, b, out):
        ours, theirs, device = [], [], task.device
        launch = {name: int(config[name]) for name in ("swap_ab", "max_swizzle_size")}
        launch["cluster_size"] = config["cluster_m"] * config["cluster_n"]
        artifact = Artifact("", task.space, "", "", tuple(launch.items()), None, 0.0, Toolchain(()))
        with (
            patch.object(binary, "load", lambda _: lambda *arguments: ours.extend(arguments)),
            patch.object(binary, "_clusters_here", device.max_active_clusters),
        ):
            SPACE.load(artifact, task)(a, b, out)
        with (
            patch.object(interface, "get_device_capacity", lambda _: device.capability),
            patch.object(dispatch, "get_device_capacity", lambda _: device.capability),
            patch.object(dispatch, "get_max_active_clusters", lambda size, **_: device.max_active_clusters(size)),
            patch.object(dispatch, "_compile_gemm", lambda *_, **__: lambda *arguments: theirs.extend(arguments)),
            patch.object(dispatch, "_gemm_plan_cache", {}),
        ):
            interface.gemm_tuned.fn(a, b, out, config=GemmConfig(**config, device_capacity=device.capability[0]))
        return ours, theirs

    return of


def told(argument):
    """A tensor as a kernel sees it, a number as its value, a tuple as its members."""
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr(), tuple(argument.shape), argument.stride(), argument.dtype
    return tuple(map(told, argument)) if isinstance(argument, tuple) else getattr(argument, "value", argument)


@pytest.mark.parametrize("sku", ["H200", "B200"])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_a_launch_passes_what_quack_passes(passed, layout, sku):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from gemmtune.engine.measure.operands.operands import make_operands

    problem = Problem.parse(f"16x24x32:bf16:{layout}:out_dtype=fp32")
    operands: Any = make_operands(problem, torch.device("cpu"))
    task = Task(problem, catalogue.device(sku), "quack_gemm")
    for candidate in CONFIGS[task.device.arch]:
        ours, theirs = passed(task, candidate, operands.a, operands.b, operands.out)
        assert len(theirs) == 9
        assert [told(argument) for argument in ours] == [told(argument) for argument in theirs]


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """By problem and config, what other processes built for the GPU that is here."""
    jobs = [
        BuildJob(Task(Problem.parse(problem), DEVICE, "quack_gemm"), candidate)
        for problem in PROBLEMS
        for candidate in CONFIGS[DEVICE.arch]
    ]
    pool, found = builder_pool(("quack_gemm",), tmp_path_factory.mktemp("built"), 4, 100.0), {}
    try:
        for job in jobs:
            pool.submit(job)
        until = time.monotonic() + 110
        while len(found) < len(jobs) and time.monotonic() < until:
            found |= {outcome.job: outcome.result for outcome in pool.collect()}
            time.sleep(0.05)
    finally:
        pool.close()
    return {(job.task.problem.name, job.config): found.get(job) for job in jobs}


@pytest.fixture
def loaded(artifacts):
    """A kernel of those, its problem, and as many sets of operands as asked, outputs poisoned with NaN."""
    import torch

    from gemmtune.engine.measure.operands.operands import make_operands

    kernels = []

    def load(name, number, sets):
        problem, candidate = Problem.parse(name), CONFIGS[DEVICE.arch][number]
        artifact = artifacts[problem.name, candidate]
        assert isinstance(artifact, Artifact), artifact
        kernels.append(SPACE.load(artifact, Task(problem, DEVICE, "quack_gemm")))
        operands: Any = [make_operands(problem, torch.device("cuda"), i) for i in range(sets)]
        for each in operands:
            each.out.fill_(float("nan"))
        return kernels[-1], problem, operands

    yield load
    torch.cuda.synchronize()
    for kernel in kernels:
        kernel.close()


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_kernel_is_right_on_each_set_of_operands_and_allocates_nothing(loaded, name, number):
    import torch

    from gemmtune.engine.measure.operands.reference import ReferenceResult

    kernel, problem, (one, other) = loaded(name, number, 2)
    kernel(one.a, one.b, one.out)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    kernel(other.a, other.b, other.out)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    for operands in (one, other):
        assert ReferenceResult(problem, operands).check(operands.out).reason == ""


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_captured_launch_replays_on_the_stream_of_the_graph(loaded, name, number):
    import torch

    from gemmtune.engine.measure.operands.reference import ReferenceResult

    kernel, problem, (one, other) = loaded(name, number, 2)
    kernel(one.a, one.b, one.out)  # loads the cubin, which cannot be captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(other.a, other.b, other.out)
    assert bool(other.out.isnan().all())  # captured, not run
    graph.replay()
    assert ReferenceResult(problem, other).check(other.out).reason == ""
