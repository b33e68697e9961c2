"""Load cubins of Triton kernels and launch them one after the other. Imports torch and cuda.bindings."""

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import torch

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.toolchain.launching.cubin import CubinKernel
from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace


class TritonKernels:
    """Kernels that one call launches in order, on the tensors it is given."""

    def __init__(self, artifact: Artifact, launches: Sequence[KernelLaunch]) -> None:
        """Load the binaries into torch's current context.

        Raises:
            RuntimeError: the driver refuses a binary.
            torch.OutOfMemoryError: the kernels' own memory does not fit.
        """
        facts: dict[str, Any] = dict(artifact.launch)
        binaries = Path(artifact.path).read_bytes()
        memory: dict[int, torch.Tensor] = {}
        self._kernels = []
        for number, launch in enumerate(launches):
            own = {name: facts[f"{name}_{number}"] for name in ("entry", "bytes", "shared", "threads", "scratch")}
            own["ctas"] = facts.get(f"ctas_{number}", 1)
            cubin, binaries = binaries[: own["bytes"]], binaries[own["bytes"] :]
            self._kernels.append(_Kernel(launch, cubin, own, memory))

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
        self, launch: KernelLaunch, cubin: bytes, facts: Mapping[str, Any], memory: dict[int, torch.Tensor]
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
        if facts["scratch"]:
            self._memory.append(_bytes(facts["scratch"] * prod(launch.grid) * facts["ctas"]))
            values["scratch"] = self._memory[-1].data_ptr()
        block = facts["threads"], facts["shared"]
        grid = (launch.grid[0] * facts["ctas"], *launch.grid[1:])
        self._cubin = CubinKernel(
            cubin, facts["entry"], grid, *block, passed, values, tuple(self._tensors), facts["ctas"]
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
