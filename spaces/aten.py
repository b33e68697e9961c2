"""Space of the vendor library, called through ATen (cuBLAS on NVIDIA): the baseline of every problem."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.platform import vendor_gemm as vendor
from gemmtune.engine.platform.versions import toolchain_of
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.problem import gemm
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space

if TYPE_CHECKING:
    import torch

__all__ = ["AtenSpace"]

_FIRST_WITH_FP8 = (8, 9)


class AtenSpace(Space):
    """One config: the kernel that eager mode runs, and that Inductor calls `aten::mm`, `aten::addmm` or `aten::bmm`.

    It calls `torch.mm`, `torch.addmm` or `torch.bmm`, and for operands of 8 bits `_scaled_mm` or `_int_mm`. All take m
    at run time.
    """

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return no parameters: the vendor library chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject operands that the vendor library does not multiply, or whose type the GPU lacks."""
        problem = gemm(task.problem)
        eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
        if eight_bit_float and task.device.capability < _FIRST_WITH_FP8:
            return Verdict.no("architecture", f"{problem.a_dtype} needs sm_89 or later, not {task.device.arch}")
        return vendor.supports(problem)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if it serves the task."""
        config = Config({})
        return (config,) if self.check(task, config) else ()

    def toolchain(self) -> Toolchain:
        """Return the version of torch, which contains the vendor library."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the entry point of the vendor library: it serves all tasks of an operation and operand type."""
        return vendor.operator_name(gemm(task.problem))

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names the vendor library's entry point; nothing is built."""
        key = self.artifact_key(task, config)
        return Artifact(
            key=key,
            space=task.space,
            path="",
            digest=hashlib.sha256(key.encode()).hexdigest(),
            launch=(),
            resources=None,
            build_seconds=0.0,
            toolchain=self.toolchain(),
        )

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return the vendor library's entry point, in the problem's tf32 mode."""
        return _VendorKernel(gemm(task.problem).allow_tf32)


class _VendorKernel:
    def __init__(self, allow_tf32: bool) -> None:
        self._allow_tf32 = allow_tf32

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        vendor.multiply(a, b, out, bias, allow_tf32=self._allow_tf32)

    def close(self) -> None:
        """Do nothing: the kernel holds no memory."""
