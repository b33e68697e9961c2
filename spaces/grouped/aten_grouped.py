"""Space of torch's own grouped product, the baseline of grouped products."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.terms import Accumulation, DType
from gemmtune.engine.records.grouped.product import grouped
from gemmtune.engine.records.grouped.served import GENERATIONS
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.space import Launchable
from gemmtune.spaces.common.one_config import PooledCall, TorchFunctionSpace
from gemmtune.spaces.grouped.alignment import strided

if TYPE_CHECKING:
    import torch

_KEYS = {DType.BF16: "aten::_grouped_mm", DType.E4M3: "aten::_scaled_grouped_mm"}
"""Entry points by the type of the operands."""
_SCALED_ARCH, _SCALED_MULTIPLE = "sm_90a", 16
_MOST_GROUPS = 1024


class AtenGroupedSpace(TorchFunctionSpace):
    """One config: `torch._grouped_mm`, or `torch._scaled_grouped_mm` for e4m3 (CUTLASS on Hopper).

    Eager mode and untuned `torch.compile` run it. Source of its limits: `_grouped_mm_cuda` and
    `_scaled_grouped_mm_cuda` in aten/src/ATen/native/cuda/GroupedBlas.cpp (torch 2.11 to 2.13).
    """

    workload = "grouped"
    examples = (
        ("grouped:rows:m64:g4:n256:k128:bf16:nt", "H200"),
        ("grouped:inner:m64:g4:n256:k128:bf16:tn:routing=zipf", "H200"),
        ("grouped:batched:m64:g4:n256:k128:bf16:nn", "B200"),
        ("grouped:rows:m64:g4:n250:k128:bf16:nn", "H200"),
        ("grouped:rows:m64:g4:n256:k128:e4m3:nt:epilogue=mul(column[fp32]).mul(row[fp32])", "H200"),
    )

    def check(self, task: Task, config: Config) -> Verdict:
        """Reject operands that torch refuses, or multiplies by a loop on the host, which no graph captures."""
        product = grouped(task.problem)
        if task.device.capability[0] not in GENERATIONS:
            reason = f"torch multiplies groups by a loop on the host on {task.device.arch}, which no graph captures"
            return Verdict.no("architecture", reason)
        if product.dtype not in _KEYS:
            return Verdict.no("dtype", f"torch has kernels for {' and '.join(_KEYS)}, not for {product.dtype}")
        if product.dtype is DType.E4M3 and task.device.arch != _SCALED_ARCH:
            reason = f"torch._scaled_grouped_mm with a scale per row is for {_SCALED_ARCH}, not for {task.device.arch}"
            return Verdict.no("architecture", reason)
        if product.dtype is DType.E4M3 and product.n % _SCALED_MULTIPLE:
            return Verdict.no("alignment", f"torch._scaled_grouped_mm wants n a multiple of 16, not {product.n}")
        if product.groups > _MOST_GROUPS:
            return Verdict.no("groups", f"torch._grouped_mm takes {_MOST_GROUPS} groups at most, not {product.groups}")
        return strided(product, "torch._grouped_mm")

    def artifact_key(self, task: Task, config: Config) -> str:
        """Return the entry point, which serves all tasks of a type."""
        return _KEYS[grouped(task.problem).dtype]

    def load(self, artifact: Artifact, task: Task) -> Launchable:
        """Return torch's entry point."""
        fast = grouped(task.problem).accumulation is Accumulation.FAST
        return PooledCall(partial(_products, fast=fast), output=2)


def _products(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, *further: torch.Tensor, fast: bool) -> torch.Tensor:
    """Return the products; further tensors are the scales of e4m3, and where groups end."""
    import torch

    *scales, offs = further or (None,)
    if not scales:
        return torch._grouped_mm(a, b, offs=offs)
    of_a, of_b = scales
    how = partial(torch._scaled_grouped_mm, out_dtype=out.dtype, use_fast_accum=fast)
    return how(a, b, of_a, of_b, offs=offs)
