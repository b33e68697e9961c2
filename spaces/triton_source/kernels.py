"""Load cubins of Triton kernels and launch them one after the other. Imports torch and cuda.bindings."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.spaces.inductor.kernel import CubinKernel
from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace

__all__ = ["TritonKernels"]


class TritonKernels:
    """Kernels that one call launches in order, on the tensors it is given."""

    def __init__(self, artifact: Artifact, launches: Sequence[KernelLaunch]) -> None:
        """Load the binaries into torch's current context.

        Raises:
            RuntimeError: the driver refuses a binary.
            torch.OutOfMemoryError: the kernels' own memory does not fit.
        """
        facts, binaries = dict(artifact.launch), Path(artifact.path).read_bytes()
        memory: dict[int, torch.Tensor] = {}
        self._kernels = []
        for number, launch in enumerate(launches):
            size = int(facts[f"bytes_{number}"])
            cubin, binaries = binaries[:size], binaries[size:]
            entry, shared = str(facts[f"entry_{number}"]), int(facts[f"shared_{number}"])
            scratch = int(facts[f"scratch_{number}"])
            self._kernels.append(
                _Kernel(launch, cubin, entry, shared, int(facts[f"threads_{number}"]), scratch, memory)
            )

    def __call__(self, *arguments: object) -> None:
        """Enqueue the launches on torch's current stream."""
        for kernel in self._kernels:
            kernel.launch(arguments)

    def close(self) -> None:
        """Unload the modules and free the kernels' own memory."""
        for kernel in self._kernels:
            kernel.close()
        self._kernels.clear()


class _Kernel:
    """One kernel, whose tensors are found in the call's arguments by their paths."""

    def __init__(
        self,
        launch: KernelLaunch,
        cubin: bytes,
        entry: str,
        shared_bytes: int,
        threads: int,
        scratch_bytes: int,
        memory: dict[int, torch.Tensor],
    ) -> None:
        passed = launch.specialised().passed
        values: dict[str, int] = {}
        self._tensors: dict[str, tuple[int, ...]] = {}
        self._memory: list[torch.Tensor] = []
        for name in passed:
            value = launch.arguments[name]
            if isinstance(value, Pointer):
                self._tensors[name] = value.path
            elif isinstance(value, Workspace):
                if value.number not in memory:
                    memory[value.number] = _bytes(value.nbytes)
                self._memory.append(memory[value.number])
                values[name] = self._memory[-1].data_ptr()
            else:
                assert value is not None
                values[name] = value
        if scratch_bytes:
            self._memory.append(_bytes(scratch_bytes * launch.grid[0] * launch.grid[1] * launch.grid[2]))
            values["scratch"] = self._memory[-1].data_ptr()
        self._cubin = CubinKernel(
            cubin, entry, launch.grid, threads, shared_bytes, passed, values, tuple(self._tensors)
        )

    def launch(self, arguments: tuple[object, ...]) -> None:
        tensors = []
        for path in self._tensors.values():
            found: Any = arguments
            for key in path:
                found = found[key]
            tensors.append(found)
        self._cubin(*tensors)

    def close(self) -> None:
        self._cubin.close()
        self._memory.clear()


def _bytes(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")
