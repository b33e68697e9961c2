"""A cubin loaded and launched through the CUDA driver. Imports torch and cuda.bindings."""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch
from cuda.bindings import driver

from gemmtune.engine.records.artifact import Artifact

__all__ = ["CudaKernel"]

_STATIC_SHARED_BYTES = 48 * 1024  # what a block may have without opting in
_NO_SCRATCH = (0, 0)  # Triton 3.6 and 3.7 take pointers to global and profile scratch behind the user's arguments


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
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _checked(driver.cuFuncSetAttribute(self._function, attribute, self._shared_bytes))
        self._types = (ctypes.c_void_p,) * (3 + len(_NO_SCRATCH))

    def __call__(self, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream."""
        pointers = (a.data_ptr(), b.data_ptr(), out.data_ptr(), *_NO_SCRATCH)
        stream = torch.cuda.current_stream().cuda_stream
        _checked(
            driver.cuLaunchKernel(
                self._function, *self._grid, self._threads, 1, 1, self._shared_bytes, stream, (pointers, self._types), 0
            )
        )

    def close(self) -> None:
        """Unload the module."""
        _checked(driver.cuModuleUnload(self._module))


def _checked(result: tuple[object, ...]) -> object:
    status, *values = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"CUDA driver: {status.name if isinstance(status, driver.CUresult) else status}")
    return values[0] if values else None
