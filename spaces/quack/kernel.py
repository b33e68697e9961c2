"""Load and launch a kernel of QuACK, without QuACK. Imports torch and cutlass."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.task import Task
from gemmtune.spaces.cute.artifact import load

if TYPE_CHECKING:
    import torch

__all__ = ["QuackKernel"]

# The fields of quack.gemm_default_epi.GemmDefaultEpiMixin.EpilogueArguments (0.6.5), all empty in a plain GEMM.
_NO_EPILOGUE = (None,) * 12


class QuackKernel:
    """Host function that QuACK compiled: it makes the tensor maps and launches on torch's current stream."""

    def __init__(self, artifact: Artifact, task: Task) -> None:
        """Load the object file; the first launch loads the cubin."""
        launch = dict(artifact.launch)
        self._function = load(artifact.path)
        self._swap_ab = bool(launch["swap_ab"])
        # quack.tile_scheduler.TileSchedulerOptions (0.6.5): clusters, raster order (compiled in), swizzle size; then
        # semaphore, permutation and all-gather, which a plain GEMM with a static or hardware scheduler lacks.
        clusters = task.device.max_active_clusters(int(launch["cluster_size"]))
        self._scheduler = (clusters, None, int(launch["max_swizzle_size"]), None, None, None)

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue one launch on torch's current stream.

        The operands are passed as in `_gemm_execute` of quack/gemm_interface.py: B is k×n. With swap_ab the kernel
        computes out.T = B.T @ A.T, and takes its second operand as n×k, which A is.
        """
        if self._swap_ab:
            a, b, out = b.mT, a, out.mT
        self._function(a, b, out, None, _NO_EPILOGUE, self._scheduler, None, None, None)

    def close(self) -> None:
        """Drop the function, which unloads the kernel."""
        del self._function
