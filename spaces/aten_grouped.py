"""Space of torch's own grouped product, the baseline of grouped products."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.gemm.terms import DType
from gemmtune.engine.records.grouped.product import grouped
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable, Space
from gemmtune.engine.toolchain.versions import toolchain_of
from gemmtune.spaces.grouped.alignment import strided

if TYPE_CHECKING:
    import torch

_KEY = "aten::_grouped_mm"
_MOST_GROUPS = 1024


class AtenGroupedSpace(Space):
    """One config: `torch._grouped_mm`, which eager mode and untuned `torch.compile` run (CUTLASS on Hopper).

    Source of its limits: `_grouped_mm_cuda` in aten/src/ATen/native/cuda/GroupedBlas.cpp (torch 2.11 to 2.13).
    """

    workload = "grouped"
    examples = (
        ("grouped:rows:m64:g4:n256:k128:bf16:nt", "H200"),
        ("grouped:inner:m64:g4:n256:k128:bf16:tn:routing=zipf", "H200"),
        ("grouped:batched:m64:g4:n256:k128:bf16:nn", "B200"),
        ("grouped:rows:m64:g4:n250:k128:bf16:nn", "H200"),
    )

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return no parameters: torch chooses for itself."""
        return ()

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject operands that torch refuses, or multiplies by a loop on the host, which no graph captures."""
        product = grouped(task.problem)
        if product.dtype is not DType.BF16:
            return Verdict.no("dtype", f"torch._grouped_mm has a kernel for bf16, not for {product.dtype}")
        if product.groups > _MOST_GROUPS:
            return Verdict.no("groups", f"torch._grouped_mm takes {_MOST_GROUPS} groups at most, not {product.groups}")
        return strided(product, "torch._grouped_mm")

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if it serves the task."""
        config = Config({})
        return (config,) if self.check(task, config) else ()

    def toolchain(self) -> Toolchain:
        """Return the version of torch."""
        return toolchain_of("torch")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the entry point, which serves all tasks."""
        return _KEY

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names torch's entry point; nothing is built."""
        digest = hashlib.sha256(_KEY.encode()).hexdigest()
        return Artifact(_KEY, task.space, "", digest, (), None, 0.0, self.toolchain())

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return torch's entry point."""
        return _TorchKernel()


class _TorchKernel:
    """`torch._grouped_mm`, which allocates its output and its workspace per call.

    A captured launch must find both where they were when it is replayed. So they come from a pool that nothing else
    uses. Outside a capture the result is copied to the output for those who read it.
    """

    def __init__(self) -> None:
        import torch

        self._pool = torch.cuda.MemPool()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, offs: torch.Tensor | None = None) -> None:
        import torch

        with torch.cuda.use_mem_pool(self._pool):
            result = torch._grouped_mm(a, b, offs=offs)
        if not torch.cuda.is_current_stream_capturing():
            out.copy_(result)

    def close(self) -> None:
        """Give the pool's memory back once no graph uses it."""
        del self._pool
