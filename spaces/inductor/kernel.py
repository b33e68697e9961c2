"""Load a Triton kernel's cubin and launch it through the CUDA driver. Imports torch and cuda.bindings."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.problem import Problem

__all__ = ["TritonKernel"]

_STATIC_SHARED_BYTES = 48 * 1024  # a block may have this much without opting in
_OPERANDS = ("a", "b", "out", "bias")
# Behind the user's arguments, Triton 3.6 to 3.9 take pointers to global scratch (`scratch_bytes` per block) and to
# scratch for profiling, which stays null.
_SCRATCH = ("scratch", "profile")
_SLOT_BYTES = ctypes.sizeof(ctypes.c_uint64)  # for pointers, and for m: an i32 is the lower half of its slot


class TritonKernel:
    """Loaded Triton kernel of A, B and out, with the further arguments its artifact names: bias, m, device memory."""

    def __init__(self, artifact: Artifact, problem: Problem) -> None:
        """Load the binary into torch's current context, for launches at the problem's m.

        Raises:
            RuntimeError: the driver refuses the binary.
            torch.OutOfMemoryError: the kernel's own memory does not fit.
        """
        torch.cuda.current_stream()  # makes torch's context current in this thread
        launch = dict(artifact.launch)
        self._module = _checked(driver.cuModuleLoadData(Path(artifact.path).read_bytes()))
        self._function = _checked(driver.cuModuleGetFunction(self._module, str(launch["entry"]).encode()))
        rows = -(-problem.m // int(launch["block_m"])) if "block_m" in launch else 1
        self._grid = (rows * int(launch["grid_x"]), int(launch["grid_y"]), int(launch["grid_z"]))
        self._threads = int(launch["threads"])
        self._shared_bytes = int(launch["shared_bytes"])
        if self._shared_bytes > _STATIC_SHARED_BYTES:
            self._prefer_shared_memory()
        x, y, z = self._grid
        self._memory = {
            "workspace": _memory(int(launch["workspace_bytes"])),
            "scratch": _memory(int(launch["scratch_bytes"]) * x * y * z),
        }
        names = (*str(launch["arguments"]).split(), *_SCRATCH)
        # The driver takes pointers to the arguments; made once, they cut the host's time per launch to a third.
        self._arguments = (ctypes.c_uint64 * len(names))()
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * len(names))(*range(first, first + len(names) * _SLOT_BYTES, _SLOT_BYTES))
        for slot, name in enumerate(names):
            memory = self._memory.get(name)
            self._arguments[slot] = problem.m if name == "m" else 0 if memory is None else memory.data_ptr()
        self._operands = [names.index(name) for name in _OPERANDS if name in names]
        self._device = torch.cuda.current_device()

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, bias: torch.Tensor | None = None) -> None:
        """Enqueue one launch on torch's current stream."""
        for slot, operand in zip(self._operands, (a, b, out, bias), strict=False):
            assert operand is not None
            self._arguments[slot] = operand.data_ptr()
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # as Inductor's own code asks for it
        pointers = ctypes.addressof(self._pointers)
        _checked(
            driver.cuLaunchKernel(
                self._function, *self._grid, self._threads, 1, 1, self._shared_bytes, stream, pointers, 0
            )
        )

    def close(self) -> None:
        """Unload the module and free the kernel's own memory."""
        _checked(driver.cuModuleUnload(self._module))
        self._memory.clear()

    def _prefer_shared_memory(self) -> None:
        """Prefer shared memory, as Triton's loader and Inductor's launcher do (triton/backends/nvidia/driver.c).

        The preference leaves little L1, which copies of less than 16 bytes go through, so it changes the time of some
        kernels much: see experiments/launch-preference. The kernel must be timed as production launches it.
        """
        function, attribute = self._function, driver.CUfunction_attribute
        optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        limit = _checked(driver.cuDeviceGetAttribute(optin, torch.cuda.current_device()))
        static = _checked(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        _checked(driver.cuFuncSetCacheConfig(function, driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED))
        dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(function, dynamic, limit - static))


def _memory(nbytes: int) -> torch.Tensor | None:
    """Return device memory aligned to 512 bytes, or None for 0 bytes."""
    return torch.empty(nbytes, dtype=torch.uint8, device="cuda") if nbytes else None


def _checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (cuda.bindings has no types)
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status.name if isinstance(status, driver.CUresult) else status}")
    return values[0] if values else None
