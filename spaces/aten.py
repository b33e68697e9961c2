"""The vendor library through ATen (cuBLAS on NVIDIA): one config, the baseline of every problem."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.platform import vendor_gemm as vendor
from gemmtune.engine.platform.versions import toolchain_of
from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space

if TYPE_CHECKING:
    import torch

__all__ = ["AtenSpace"]

_FIRST_WITH_FP8 = (8, 9)


class AtenSpace(Space):
    """What eager mode runs, and Inductor calls `aten::mm` and the like.

    `torch.mm`, `torch.addmm` and `torch.bmm`; of 8 bits `_scaled_mm` and `_int_mm`. All take m at run time.
    """

    def params(self, task: Task) -> tuple[Param, ...]:
        """None: the library chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """What the library multiplies, on a GPU that knows the type."""
        problem = task.problem
        eight_bit_float = problem.a_dtype.itemsize == 1 and not problem.a_dtype.is_integer
        if eight_bit_float and task.device.capability < _FIRST_WITH_FP8:
            return Verdict.no("architecture", f"{problem.a_dtype} needs sm_89 or later, not {task.device.arch}")
        return vendor.supports(problem)

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """The one config."""
        config = Config({})
        return (config,) if self.check(task, config) else ()

    def toolchain(self) -> Toolchain:
        """Torch brings the library."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """One entry of the library serves all tasks of a kind."""
        return vendor.operator_name(task.problem)

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Nothing to build: the artifact names the library's entry."""
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
        """The library's entry, in the tf32 mode the problem asks for."""
        return _VendorKernel(task.problem.allow_tf32)


class _VendorKernel:
    def __init__(self, allow_tf32: bool) -> None:
        self._allow_tf32 = allow_tf32

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        vendor.multiply(a, b, out, bias, allow_tf32=self._allow_tf32)

    def close(self) -> None:
        """Nothing is held."""
