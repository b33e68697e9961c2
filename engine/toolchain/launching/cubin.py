"""Load a cubin and launch it through the CUDA driver. Imports torch and cuda.bindings."""

import ctypes
from collections.abc import Mapping, Sequence

import torch
from cuda.bindings import driver

from gemmtune.engine.toolchain.cuda_driver import checked, prefer_shared_memory

_LARGEST_CLUSTER = 16
_STATIC_SHARED_BYTES = 48 * 1024  # a block may have this much without opting in
# Triton 3.6 to 3.9 take them behind the user's arguments; null unless a value is given.
_SCRATCH = ("scratch", "profile")
_SLOT_BYTES = ctypes.sizeof(ctypes.c_uint64)  # for pointers, and for m: an i32 is the lower half of its slot


class CubinKernel:
    """Function of a cubin, loaded into torch's current context, with its launch."""

    def __init__(
        self,
        binary: bytes,
        entry: str,
        grid: tuple[int, int, int],
        threads: int,
        shared_bytes: int,
        arguments: Sequence[str],
        values: Mapping[str, int],
        operands: Sequence[str],
        cluster: int = 1,
    ) -> None:
        """Load the binary, which runs in clusters of `cluster` blocks along x.

        Its `arguments` are `values`, equal for all launches, and tensors: the `operands` in the order of a call.

        Raises:
            RuntimeError: the driver refuses the binary.
        """
        torch.cuda.current_stream()  # makes torch's context current in this thread
        self._module = checked(driver.cuModuleLoadData(binary))
        self._function = checked(driver.cuModuleGetFunction(self._module, entry.encode()))
        self._grid, self._threads, self._shared_bytes = grid, threads, shared_bytes
        if shared_bytes > _STATIC_SHARED_BYTES:
            prefer_shared_memory(self._function, torch.cuda.current_device())
        if unknown := sorted(set(arguments) - {*values, *operands}):
            raise RuntimeError(f"the binary takes {unknown[0]}; known: {', '.join([*values, *operands])}")
        names = (*arguments, *_SCRATCH)
        # The driver takes pointers to the arguments; made once, they cut the host's time per launch to a third.
        self._arguments = (ctypes.c_uint64 * len(names))()
        first = ctypes.addressof(self._arguments)
        self._pointers = (ctypes.c_void_p * len(names))(*range(first, first + len(names) * _SLOT_BYTES, _SLOT_BYTES))
        for slot, name in enumerate(names):
            self._arguments[slot] = values.get(name, 0)
        self._names = names
        self._slots = [(names.index(name), place) for place, name in enumerate(operands) if name in names]
        self._device = torch.cuda.current_device()
        self._clustered = _clustered(self._function, grid, threads, shared_bytes, cluster) if cluster > 1 else None

    def __call__(self, *tensors: torch.Tensor) -> None:
        """Enqueue one launch on torch's current stream."""
        for slot, place in self._slots:
            self._arguments[slot] = tensors[place].data_ptr()
        stream = torch._C._cuda_getCurrentRawStream(self._device)  # as Inductor's own code asks for it
        pointers = ctypes.addressof(self._pointers)
        if self._clustered is not None:
            self._clustered.hStream = stream
            checked(driver.cuLaunchKernelEx(self._clustered, self._function, pointers, 0))
            return
        checked(
            driver.cuLaunchKernel(
                self._function, *self._grid, self._threads, 1, 1, self._shared_bytes, stream, pointers, 0
            )
        )

    def resize(self, grid: tuple[int, int, int], values: Mapping[str, int]) -> None:
        """Give later launches other blocks, and other values of arguments that the binary takes."""
        self._grid = grid
        if self._clustered is not None:
            self._clustered.gridDimX, self._clustered.gridDimY, self._clustered.gridDimZ = grid
        for name, value in values.items():
            self._arguments[self._names.index(name)] = value

    def close(self) -> None:
        """Unload the module from the GPU."""
        checked(driver.cuModuleUnload(self._module))


def _clustered(
    function: driver.CUfunction, grid: tuple[int, int, int], threads: int, shared_bytes: int, cluster: int
) -> driver.CUlaunchConfig:
    """Return a launch in clusters, with the attributes of Triton's own launcher."""
    if cluster == _LARGEST_CLUSTER:  # more than every GPU can run
        allowed = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
        checked(driver.cuFuncSetAttribute(function, allowed, 1))
    size, spread = driver.CUlaunchAttribute(), driver.CUlaunchAttribute()
    size.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster, 1, 1
    spread.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
    spread.value.clusterSchedulingPolicyPreference = (
        driver.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
    )
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = grid
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes = shared_bytes
    config.attrs, config.numAttrs = [size, spread], 2
    return config
