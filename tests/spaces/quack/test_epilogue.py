"""Kernels of QuACK with a bias and an epilogue, compiled for GPUs that are not here."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.kernel_call import binder
from gemmtune.engine.seams.space import BuildError
from gemmtune.spaces.quack.call import call_of
from gemmtune.spaces.quack_gemm import QuackGemmSpace

pytestmark = [
    pytest.mark.slow(20),
    pytest.mark.skipif(
        find_spec("quack") is None or find_spec("torch") is None, reason="quack-kernels or torch is not installed"
    ),
    # what quack-kernels 0.6.5 imports: names that nvidia-cutlass-dsl 4.8 deprecates, and parts of torch
    pytest.mark.filterwarnings("ignore:cutlass.utils:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`torch.jit.script:DeprecationWarning"),
]

SPACE = QuackGemmSpace()
EVERY_KIND = "addmm:epilogue=mul(column).add(matrix).mul(row).add(matrix2[fp32]).to(fp32)"


def config(tile_m, tile_n, cluster_m=1, cluster_n=1, **flags):
    sizes = {"tile_m": tile_m, "tile_n": tile_n, "cluster_m": cluster_m, "cluster_n": cluster_n}
    flags = {"pingpong": False, "swap_ab": False, "is_dynamic_persistent": False} | flags
    return Config({**sizes, **flags, "max_swizzle_size": 8})


PINGPONG, COOPERATIVE = config(128, 160, 2, 1, pingpong=True), config(256, 128, 1, 2)
SMALL = config(128, 64, 2, 1, swap_ab=True)  # for gelu, which takes the compiler longest
SWAPPED, DYNAMIC = config(128, 128, 2, 1, swap_ab=True), config(256, 128, 2, 1, is_dynamic_persistent=True)


@pytest.fixture
def arguments():
    """Return the arguments of a launch on the CPU, and the problem's tensors by name."""
    torch = pytest.importorskip("torch")
    from gemmtune.engine.measure.operands.operands import make_operands

    def of(task, launch):
        artifact = type("Built", (), {"launch": tuple(launch.items())})
        operands = make_operands(task.problem, torch.device("cpu"))
        named = dict(zip(task.problem.argument_names, operands.arguments, strict=True))
        return binder(call_of(artifact, task), task.device.max_active_clusters)(named), named

    return of


@pytest.mark.parametrize(
    ("problem", "sku", "candidate", "tensors"),
    [
        ("2048x8192x2048:bf16:nt:epilogue=mul(matrix.silu)", "H200", PINGPONG, "[n0, n2] bfloat16"),
        ("2048x1024x1024:fp16:nt:addmm:bias=matrix:epilogue=gelu", "H200", SMALL, "[n2, n1] float16"),
        (
            f"512x2880x2880:bf16:nn:{EVERY_KIND}",
            "H200",
            COOPERATIVE,
            "[n2] bfloat16, [n0] bfloat16, [n0, n2] bfloat16, [n2] bfloat16, [n0, n2] float32",
        ),
        (
            "512x2048x2048:bf16:nt:epilogue=mul(row.silu).to(fp32)+x",
            "H200",
            SWAPPED,
            "[n1] bfloat16, [n2, n1] bfloat16",
        ),
        ("4096x1280x2048:bf16:nt:epilogue=mul(0.5).relu.to(fp32)", "B200", DYNAMIC, ""),
        (
            f"512x2880x2880:bf16:nt:{EVERY_KIND}",
            "B200",
            SWAPPED,
            "[n1] bfloat16, [n2] bfloat16, [n2, n1] bfloat16, [n1] bfloat16, [n2, n1] float32",
        ),
    ],
)
def test_a_kernel_takes_the_tensors_that_a_launch_passes(problem, sku, candidate, tensors, arguments, tmp_path):
    from gemmtune.engine.toolchain.launching.cute_object import load

    of = Task(Problem.parse(problem), catalogue.device(sku), "quack_gemm")
    assert SPACE.check(of, candidate)
    artifact = SPACE.build(of, candidate, tmp_path)
    assert artifact.key == SPACE.artifact_key(of, candidate)
    assert artifact.resources.threads == (384 if sku == "H200" else 256)
    assert artifact.resources.spill_bytes <= 32
    assert 128 * 1024 < artifact.resources.shared_bytes <= of.device.shared_memory_per_block_bytes
    passed, _ = arguments(of, dict(artifact.launch))
    with pytest.raises(ValueError, match="expected device_type=cuda") as refusal:  # on a GPU it would run
        load(Path(artifact.path).read_bytes)(*passed)
    taken = re.search(r"epilogue_args: Tuple\[(.*), None, None\], scheduler_args", str(refusal.value))
    text = taken[1] if taken else ""
    assert re.sub(r"Tensor\((\[[^]]*\]), (\w+)\)", r"\1 \2", text) == tensors
    assert re.search(r"mD: Tensor\(\[\w+, \w+\], (\w+)\)", str(refusal.value))[1] == str(passed[2].dtype)[6:]


def told(argument):
    """A tensor as a kernel sees it, a number as its value, a tuple as its members."""
    if hasattr(argument, "data_ptr"):
        return argument.data_ptr(), tuple(argument.shape), argument.stride(), argument.dtype
    return tuple(map(told, argument)) if isinstance(argument, tuple) else getattr(argument, "value", argument)


@pytest.mark.parametrize("sku", ["H200", "B200"])
@pytest.mark.parametrize("candidate", [COOPERATIVE, SWAPPED])
@pytest.mark.parametrize("suffix", ["addmm", "addmm:bias=matrix", EVERY_KIND, "epilogue=mul(matrix.silu)+x"])
def test_a_launch_passes_what_quack_passes(suffix, candidate, sku, arguments):
    from quack.epilogue import frontend
    from quack.gemm_runtime import host

    from gemmtune.spaces.quack.epilogue import epilogue_mod

    device, theirs = catalogue.device(sku), []
    of = Task(Problem.parse(f"16x24x32:bf16:nt:{suffix}"), device, "quack_gemm")
    sizes = {name: candidate.integer(name) for name in ("cluster_m", "cluster_n")}
    launch = {"swap_ab": int(candidate["swap_ab"]), "cluster_size": sizes["cluster_m"] * sizes["cluster_n"]}
    ours, named = arguments(of, launch | {"max_swizzle_size": 8})
    a, b, out, *others = named.values()
    vectors_flat = [tensor.flatten() if 1 in tensor.shape else tensor for tensor in others]
    with (
        patch.object(frontend, "get_device_capacity", lambda _: device.capability),
        patch.object(host, "get_max_active_clusters", lambda size, **_: device.max_active_clusters(size)),
        patch.object(host, "_compile_gemm_epi", lambda *_, **__: lambda *passed: theirs.extend(passed)),
    ):
        epilogue_mod(of.problem).gemm(
            *(a, b, out),
            epi_args=dict(zip(list(named)[3:], vectors_flat, strict=True)),
            **{f"{name[:-1]}{name[-1].upper()}": size for name, size in sizes.items()},
            swap_ab=bool(candidate["swap_ab"]),
            b_kn=True,
        )
    assert len(theirs) == 9
    assert [told(argument) for argument in ours] == [told(argument) for argument in theirs]


@pytest.mark.parametrize("candidate", [config(128, 256, 2, 1), config(256, 128, 2, 1, swap_ab=True)])
def test_a_kernel_with_one_stage_of_a_and_b_is_refused(candidate, tmp_path):
    task = Task(Problem.parse(f"591x1032x1024:bf16:nn:{EVERY_KIND}"), catalogue.device("H200"), "quack_gemm")
    assert SPACE.check(task, candidate)
    with pytest.raises(BuildError, match="holds 1 of the 2 needed stages of A and B"):
        SPACE.build(task, candidate, tmp_path)
