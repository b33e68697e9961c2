"""Spaces of one config, which a library or a program chooses for itself, and torch's functions among them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.records.artifact import Artifact, Toolchain
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.space import Space
from gemmtune.engine.toolchain.versions import toolchain_of

if TYPE_CHECKING:
    import torch


class OneConfigSpace(Space):
    """Space of the empty config; `check` says which tasks it serves."""

    def params(self, task: Task) -> tuple[Param, ...]:
        """Return no parameters: what is called chooses for itself."""
        return ()

    def seeds(self, task: Task) -> tuple[Config, ...]:
        """Return the one config, if it serves the task."""
        return (Config({}),) if self.check(task, Config({})) else ()


class TorchFunctionSpace(OneConfigSpace):
    """Space of a function of torch, whose name is the key of its artifacts."""

    def toolchain(self) -> Toolchain:
        """Return the version of torch, which contains the vendor library."""
        return toolchain_of("torch")

    def build(self, task: Task, config: Config, folder: Path) -> Artifact:
        """Return an artifact that names torch's function; nothing is built."""
        key = self.artifact_key(task, config)
        return Artifact(key, task.space, "", hashlib.sha256(key.encode()).hexdigest(), (), None, 0.0, self.toolchain())


class PooledCall:
    """Function of torch that allocates its output, and perhaps a workspace, per call.

    A captured launch must find both where they were when it is replayed. So they come from a pool that nothing else
    uses. Outside a capture the result is copied to the output for those who read it.
    """

    def __init__(self, function: Callable[..., torch.Tensor], output: int) -> None:
        """Take a function of a kernel's arguments, and the place of the output among them."""
        import torch

        self._function, self._output, self._pool = function, output, torch.cuda.MemPool()

    def __call__(self, *arguments: torch.Tensor) -> None:
        """Enqueue the function's kernels."""
        import torch

        with torch.cuda.use_mem_pool(self._pool):
            result = self._function(*arguments)
        if not torch.cuda.is_current_stream_capturing():
            arguments[self._output].copy_(result)

    def close(self) -> None:
        """Give the pool's memory back once no graph uses it."""
        del self._pool
