"""Launch a saved CuTe operator through TVM-FFI. Imports torch and cutlass."""

from __future__ import annotations

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.spaces.cute.artifact import load

__all__ = ["CuteKernel"]


class CuteKernel:
    """Host function of one operator: it makes the tensor maps and launches, and compiles nothing."""

    def __init__(self, artifact: Artifact) -> None:
        """Link the object; the first launch loads the cubin, and therefore must not be captured.

        Raises:
            Exception: the object cannot be linked.
        """
        self._function = load(artifact.path)
        self._output_last = dict(artifact.launch)["arguments"] == "a b stream out"
        self._device = torch.cuda.current_device()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue one launch on torch's current stream."""
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # as Inductor's own code asks for it
        if self._output_last:
            self._function(a, b, stream, out)
        else:
            self._function(a, b, out, stream)

    def close(self) -> None:
        """Drop the function, which unloads the cubin."""
        del self._function
