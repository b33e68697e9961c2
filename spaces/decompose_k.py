"""Space of Inductor's split of k into a batch of the vendor library's products, which a kernel sums."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, KernelCode, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.problem import Problem, gemm
from gemmtune.engine.records.gemm.terms import DType, Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import BuildError, Launchable, Space
from gemmtune.engine.toolchain.vendor_gemm import is_of_dense_types
from gemmtune.engine.toolchain.versions import triton_toolchain

if TYPE_CHECKING:
    import torch

_SPLITS = (2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256)
_LEAST_PART = 128  # columns of A per part, as in `get_k_splits` of torch/_inductor/utils.py
_ALIGNED_BYTES = 16  # of the address of each part
_BLOCK = 64  # rows and columns of a block of the vendor library, about
_SEEDS = 8


class DecomposeKSpace(Space):
    """Parts of k for an mm with few rows and columns and a long k, such as the gradient of a LoRA weight.

    Inductor calls the template `decompose_k`: the vendor library's bmm of the parts to fp32, and a kernel of Inductor
    that sums them. AOTInductor does not take it.
    """

    preload = ("gemmtune.spaces.inductor.preload",)

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return the number of parts; `check` rejects those that do not divide k."""
        return (Param("k_split", _SPLITS),)

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject what Inductor does not split, and parts that are short or not aligned."""
        problem, parts = gemm(task.problem), config.integer("k_split")
        served = _serves(problem)
        if not served:
            return served
        most = problem.k // max(problem.m, problem.n)
        if parts > most:
            return Verdict.no("parts", f"k_split {parts} > {most}, the ratio of k to the larger of m and n")
        if problem.k % parts:
            return Verdict.no("remainder", f"k_split {parts} does not divide k of {problem.k}")
        part = problem.k // parts
        if part < _LEAST_PART or part * problem.a_dtype.itemsize % _ALIGNED_BYTES:
            return Verdict.no("short parts", f"a part of {part} columns is under {_LEAST_PART}, or not aligned to 16 B")
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the numbers of parts whose products fill the GPU about once, the nearest to that first."""
        problem = gemm(task.problem)
        wanted = task.device.sm_count / (-(-problem.m // _BLOCK) * -(-problem.n // _BLOCK))
        feasible = [config for config in self.points(task) if self.check(task, config)]
        return tuple(sorted(feasible, key=lambda config: abs(config.integer("k_split") - wanted))[:_SEEDS])

    def toolchain(self) -> Toolchain:
        """Return the versions of torch, which contains the vendor library, and Triton."""
        return triton_toolchain("torch")

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Compile the kernel that sums the parts; raises BuildError if the parts are none that `check` allows."""
        if not (verdict := self.check(task, config)):
            raise BuildError(verdict.reason)
        from gemmtune.spaces.inductor.pointwise import build_pointwise
        from gemmtune.spaces.inductor.render import render_sum

        parts = config.integer("k_split")
        artifact = build_pointwise(self, task, config, folder, partial(render_sum, parts=parts))
        return replace(artifact, launch=(*artifact.launch, ("parts", parts)))

    def code(self, task: Task, config: Config, folder: Path) -> KernelCode:
        """Return the PTX of what is launched, with the config."""
        from gemmtune.spaces.triton_source.code import triton_code

        return triton_code(self, task, config, folder)

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Load the kernel, and return the sequence of the vendor library's call and its launch."""
        return _SplitProduct(artifact, gemm(task.problem))


def _serves(problem: Problem) -> Verdict:
    """Return whether Inductor splits such a product."""
    if problem.op is not Op.MM or problem.dynamic_m or problem.epilogue:
        what = "a dynamic m" if problem.dynamic_m else "an epilogue" if problem.epilogue else str(problem.op)
        return Verdict.no("operation", f"decompose_k computes an mm of fixed sizes alone, not {what}")
    if not is_of_dense_types(problem) or problem.out_dtype is not problem.a_dtype:
        return Verdict.no("dtypes", "decompose_k needs A, B and out of one dtype of 16 or 32 bits")
    if problem.acc_dtype is not DType.FP32:
        return Verdict.no("dtypes", f"decompose_k accumulates in fp32, not in {problem.acc_dtype}")
    return Verdict.yes()


class _SplitProduct:
    """Vendor library's product of each part of k, and Inductor's kernel that sums them."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        import torch

        from gemmtune.spaces.inductor.pointwise import PointwiseKernels

        self._sum = PointwiseKernels(artifact, problem)
        self._parts = int(dict(artifact.launch)["parts"])
        self._precision = "tf32" if problem.allow_tf32 else "ieee"
        shape = (self._parts, problem.m, problem.n)
        self._products: torch.Tensor | None = torch.empty(shape, dtype=torch.float32, device="cuda")

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        import torch

        assert self._products is not None
        torch.backends.cuda.matmul.fp32_precision = self._precision
        of_a = torch.unflatten(a, 1, (self._parts, -1)).transpose(0, 1)
        of_b = torch.unflatten(b, 0, (self._parts, -1))
        torch.bmm(of_a, of_b, out_dtype=torch.float32, out=self._products)
        self._sum(a, b, out, self._products)

    def close(self) -> None:
        """Unload the kernel and free the parts' memory."""
        self._sum.close()
        self._products = None
