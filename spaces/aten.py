"""The vendor library through ATen (cuBLAS on NVIDIA): one config, the baseline of every problem."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.problem import Op
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.spaces._versions import toolchain_of

if TYPE_CHECKING:
    import torch

__all__ = ["AtenSpace"]


class AtenSpace(Space):
    """`torch.mm(a, b, out=out)`: what eager mode runs, and what Inductor's `aten::mm` choice runs."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """None: the library chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """Only mm is called so far, which knows no type of 8 bits."""
        if task.problem.op is not Op.MM:
            return Verdict.no("operation", f"aten runs mm, not {task.problem.op}")
        if task.problem.a_dtype.itemsize == 1:
            return Verdict.no("types", f"torch.mm multiplies no {task.problem.a_dtype}")
        return Verdict.yes()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """The one config."""
        config = Config({})
        return (config,) if self.check(task, config) else ()

    def toolchain(self) -> Toolchain:
        """Torch brings the library."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """One library serves every task."""
        return "aten::mm"

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
        """Set the tf32 mode the problem asks for."""
        return _AtenMm(task.problem.allow_tf32)


class _AtenMm:
    def __init__(self, allow_tf32: bool) -> None:
        import torch

        self._torch = torch
        self._precision = "tf32" if allow_tf32 else "ieee"

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        self._torch.backends.cuda.matmul.fp32_precision = self._precision
        self._torch.mm(a, b, out=out)

    def close(self) -> None:
        """Nothing is held."""
