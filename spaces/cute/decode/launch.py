"""Load and launch a decode kernel. Imports torch and cutlass."""

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.spaces.cute.artifact import load

__all__ = ["LoadedDecodeKernel"]


class LoadedDecodeKernel:
    """Host function of one kernel; it launches on torch's current stream, allocates nothing and waits for nothing."""

    def __init__(self, artifact: Artifact) -> None:
        """Link the object; the first launch loads the cubin, and therefore must not be captured.

        Raises:
            Exception: the object cannot be linked.
        """
        self._function = load(artifact.path)
        self._device = torch.cuda.current_device()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue one launch; the kernel takes B as n×k, and any tensor where it adds no bias."""
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        self._function(a, b.mT, out if bias is None else bias, out, stream)

    def close(self) -> None:
        """Drop the function, which unloads the cubin."""
        del self._function
