"""A cubin loaded and launched through the CUDA driver. Imports torch and cuda.bindings."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from gemmtune.engine.records.artifact import Artifact

__all__ = ["CudaKernel"]

_STATIC_SHARED_BYTES = 48 * 1024  # what a block may have without opting in
_ARGUMENTS = 3 + 2  # behind the user's, Triton 3.6 and 3.7 take pointers to global and profile scratch, which stay null
_POINTER_BYTES = ctypes.sizeof(ctypes.c_void_p)


class CudaKernel:
    """A Triton kernel of three pointers (A, B, out) and Triton's two scratch pointers, which stay null."""

    def __init__(self, artifact: Artifact) -> None:
        """Load the binary into torch's current context.

        Raises:
            RuntimeError: the driver refuses it.
        """
        torch.cuda.current_stream()  # makes torch's context current in this thread
        launch = dict(artifact.launch)
        self._module = _checked(driver.cuModuleLoadData(Path(artifact.path).read_bytes()))
        self._function = _checked(driver.cuModuleGetFunction(self._module, str(launch["entry"]).encode()))
        self._grid = (int(launch["grid_x"]), int(launch["grid_y"]), int(launch["grid_z"]))
        self._threads = int(launch["threads"])
        self._shared_bytes = int(launch["shared_bytes"])
        if self._shared_bytes > _STATIC_SHARED_BYTES:
            self._prefer_shared_memory()
        # The driver wants pointers to the arguments; made once, a launch costs the host a third.
        self._arguments = (ctypes.c_void_p * _ARGUMENTS)()
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * _ARGUMENTS)(
            *range(first, first + _ARGUMENTS * _POINTER_BYTES, _POINTER_BYTES)
        )
        self._device = torch.cuda.current_device()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream."""
        self._arguments[:3] = [a.data_ptr(), b.data_ptr(), out.data_ptr()]
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # as Inductor's own code asks for it
        pointers = ctypes.addressof(self._pointers)
        _checked(
            driver.cuLaunchKernel(
                self._function, *self._grid, self._threads, 1, 1, self._shared_bytes, stream, pointers, 0
            )
        )

    def close(self) -> None:
        """Unload the module."""
        _checked(driver.cuModuleUnload(self._module))

    def _prefer_shared_memory(self) -> None:
        """Configure the function as Triton's loader and Inductor's launcher do (triton/backends/nvidia/driver.c).

        That is no detail: with shared memory preferred little L1 is left, and copies of less than 16 bytes go through
        L1. One binary for a ragged k (1024x1280x3420, tile 128x128x64, 4 stages) took 69 µs launched by Inductor and
        37 µs launched without this (H200, 2026-11-21). What is timed must be what production launches.
        """
        function, attribute = self._function, driver.CUfunction_attribute
        optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = _checked(driver.cuDeviceGetAttribute(optin, torch.cuda.current_device()))
        static = _checked(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        _checked(driver.cuFuncSetCacheConfig(function, driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED))
        dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, dynamic, limit - static))


def _checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (cuda.bindings has no types)
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status.name if isinstance(status, driver.CUresult) else status}")
    return values[0] if values else None
