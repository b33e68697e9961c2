"""Kernels of a module's text: built without a GPU, and launched one after the other on one."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Space
from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from gemmtune.spaces.triton_source.build import build_kernels  # noqa: E402 (it imports triton)

SOURCE = """
import triton
import triton.language as tl

@triton.jit
def double(src, dst, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(dst + at, 2 * tl.load(src + at, at < n), at < n)
"""
N, BLOCK = 1000, 256
TASK = Task(Problem.parse("16x16x16"), catalogue.device("H200"), "doubled")


def launches(function="double"):
    src, partial, dst = Pointer("fp32", (0,)), Workspace("fp32", 4 * N), Pointer("fp32", (1, 7))
    grid, constants = (-(-N // BLOCK), 1, 1), {"BLOCK": BLOCK}
    return [
        KernelLaunch(function, {"src": a, "dst": b, "n": N}, constants, grid, 4, 3)
        for a, b in ((src, partial), (partial, dst))
    ]


class Doubled(Space):
    """Two launches that double what they read."""

    def params(self, task):
        return (Param("ONE", (1,)),)

    def check(self, task, config):
        return Verdict.yes()

    def seeds(self, task):
        return ()

    def toolchain(self):
        return Toolchain((("doubled", "1.0"),))

    def build(self, task, config, folder):
        return build_kernels(self, task, config, folder, SOURCE, launches())

    def load(self, artifact, task):
        from gemmtune.spaces.triton_source.kernels import TritonKernels

        return TritonKernels(artifact, launches())


@pytest.mark.slow(6)
def test_launches_that_follow_each_other_are_one_artifact(tmp_path):
    artifact = Doubled().build(TASK, Config({"ONE": 1}), tmp_path)
    facts = dict(artifact.launch)
    assert facts["kernels"] == 2
    assert facts["config"] == '{"ONE":1}'
    assert Path(artifact.path).stat().st_size == facts["bytes_0"] + facts["bytes_1"]
    assert facts["entry_0"] == facts["entry_1"] == "double"
    assert artifact.resources.threads == 128
    assert [path.name for path in tmp_path.iterdir()] == [Path(artifact.path).name]


@pytest.mark.parametrize(
    ("source", "said"),
    [(SOURCE.replace("src + at", "src[at]"), "Error"), (SOURCE.replace("n, BLOCK", "n, more, BLOCK"), "argument more")],
)
def test_a_kernel_that_triton_or_the_launch_refuses_says_why(tmp_path, source, said):
    with pytest.raises(BuildError, match=said):
        build_kernels(Doubled(), TASK, Config({"ONE": 1}), tmp_path, source, launches())
    assert not any(tmp_path.iterdir())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU to launch what was built")
def test_the_launches_run_in_order_on_the_given_tensors(tmp_path):
    if torch.cuda.get_device_capability() != TASK.device.capability:
        pytest.skip("the binaries are for sm_90")
    space = Doubled()
    kernel = space.load(space.build(TASK, Config({"ONE": 1}), tmp_path), TASK)
    src, dst = torch.randn(N, device="cuda"), torch.empty(N, device="cuda")
    kernel(src, {7: dst})
    torch.cuda.synchronize()
    torch.testing.assert_close(dst, 4 * src)
    kernel.close()
