"""Load cubins of Triton kernels and launch them one after the other. Imports torch and cuda.bindings."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from gemmtune.engine.records.artifact import Artifact
from gemmtune.spaces.triton_source.launches import KernelLaunch, Pointer, Workspace

__all__ = ["TritonKernels"]

_STATIC_SHARED_BYTES = 48 * 1024  # a block may have this much without opting in
_SLOT_BYTES = ctypes.sizeof(ctypes.c_uint64)  # for pointers, and for integers: an i32 is the lower half of its slot
# Behind the user's arguments, Triton 3.6 to 3.9 take pointers to global scratch and to scratch for profiling.
_SCRATCH = 2


class TritonKernels:
    """Kernels that one call launches in order, on the tensors it is given."""

    def __init__(self, artifact: Artifact, launches: Sequence[KernelLaunch]) -> None:
        """Load the binaries into torch's current context.

        Raises:
            RuntimeError: the driver refuses a binary.
            torch.OutOfMemoryError: the kernels' own memory does not fit.
        """
        torch.cuda.current_stream()  # makes torch's context current in this thread
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
        self._device = torch.cuda.current_device()

    def __call__(self, *arguments: object) -> None:
        """Enqueue the launches on torch's current stream."""
        stream = torch._C._cuda_getCurrentRawStream(self._device)
        for kernel in self._kernels:
            kernel.launch(arguments, stream)

    def close(self) -> None:
        """Unload the modules and free the kernels' own memory."""
        for kernel in self._kernels:
            kernel.close()
        self._kernels.clear()


class _Kernel:
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
        self._module = _checked(driver.cuModuleLoadData(cubin))
        self._function = _checked(driver.cuModuleGetFunction(self._module, entry.encode()))
        self._grid, self._threads, self._shared_bytes = launch.grid, threads, shared_bytes
        if shared_bytes > _STATIC_SHARED_BYTES:
            self._prefer_shared_memory()
        passed = launch.specialised().passed
        count = len(passed) + _SCRATCH
        self._arguments = (ctypes.c_uint64 * count)()
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * count)(*range(first, first + count * _SLOT_BYTES, _SLOT_BYTES))
        self._tensors: list[tuple[int, tuple[int, ...]]] = []
        self._memory: list[torch.Tensor] = []
        for slot, name in enumerate(passed):
            value = launch.arguments[name]
            if isinstance(value, Pointer):
                self._tensors.append((slot, value.path))
            elif isinstance(value, Workspace):
                if value.number not in memory:
                    memory[value.number] = _bytes(value.nbytes)
                self._arguments[slot] = memory[value.number].data_ptr()
                self._memory.append(memory[value.number])
            else:
                assert value is not None
                self._arguments[slot] = value
        blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]
        if scratch_bytes:
            self._memory.append(_bytes(scratch_bytes * blocks))
            self._arguments[len(passed)] = self._memory[-1].data_ptr()

    def launch(self, arguments: tuple[object, ...], stream: int) -> None:
        for slot, path in self._tensors:
            found: Any = arguments
            for key in path:
                found = found[key]
            self._arguments[slot] = found.data_ptr()
        pointers = ctypes.addressof(self._pointers)
        grid, threads, shared = self._grid, self._threads, self._shared_bytes
        _checked(driver.cuLaunchKernel(self._function, *grid, threads, 1, 1, shared, stream, pointers, 0))

    def close(self) -> None:
        _checked(driver.cuModuleUnload(self._module))
        self._memory.clear()

    def _prefer_shared_memory(self) -> None:
        """Prefer shared memory, as Triton's own loader does (triton/backends/nvidia/driver.c)."""
        function, attribute = self._function, driver.CUfunction_attribute
        optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = _checked(driver.cuDeviceGetAttribute(optin, torch.cuda.current_device()))
        static = _checked(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        _checked(driver.cuFuncSetCacheConfig(function, driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED))
        dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, dynamic, limit - static))


def _bytes(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda")


def _checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (cuda.bindings has no types)
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status.name if isinstance(status, driver.CUresult) else status}")
    return values[0] if values else None
