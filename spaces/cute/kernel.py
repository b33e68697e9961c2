"""A saved CuTe operator, launched through TVM-FFI. Imports torch and cutlass."""

from __future__ import annotations

from collections.abc import Callable

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.spaces.cute.artifact import load

__all__ = ["CuteKernel"]


class CuteKernel:
    """The host function of one operator, which makes the tensor maps and launches; nothing is compiled here."""

    def __init__(self, artifact: Artifact) -> None:
        """Link the object; its cubin is loaded by the first launch, which therefore must not be captured.

        Raises:
            Exception: it cannot be linked.
        """
        function: Callable[..., None] | None = load(artifact.path)
        self._function = function
        self._output_last = dict(artifact.launch)["arguments"] == "a b stream out"
        self._device = torch.cuda.current_device()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue one launch on torch's current stream."""
        if self._function is None:
            raise RuntimeError("the kernel is closed")
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # as Inductor's own code asks for it
        if self._output_last:
            self._function(a, b, stream, out)
        else:
            self._function(a, b, out, stream)

    def close(self) -> None:
        """Drop the function, which unloads its cubin."""
        self._function = None
