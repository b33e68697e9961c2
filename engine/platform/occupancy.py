"""How many clusters of blocks run on a GPU at once, asked of its driver. Needs cuda-bindings; nothing is launched.

`cutlass.utils.HardwareInfo.get_max_active_clusters`, which CuTe's dispatchers ask, puts the same question about an
empty kernel that it compiles; here the driver makes one of four lines of PTX.
"""

from __future__ import annotations

from cuda.bindings import driver

from gemmtune.engine.platform.cuda_driver import checked

__all__ = ["SIZES", "active_clusters"]

SIZES = (1, 2, 4, 8, 16)
"""Blocks of a cluster, from one to the most a GPU takes."""

_PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n"
_THREADS = 128


def active_clusters(handle: object) -> tuple[tuple[int, int], ...]:
    """(blocks of a cluster, clusters at once) for each of SIZES that the GPU runs, one block a multiprocessor.

    The GPU's primary context is taken for the while, and is gone afterwards unless somebody else holds it.

    Args:
        handle: a CUdevice of compute capability 9.0 or later; earlier ones have no clusters.

    Raises:
        RuntimeError: the driver does not answer.
    """
    context = checked(driver.cuDevicePrimaryCtxRetain(handle))
    try:
        checked(driver.cuCtxPushCurrent(context))
        try:
            return _ask(handle)
        finally:
            checked(driver.cuCtxPopCurrent())
    finally:
        checked(driver.cuDevicePrimaryCtxRelease(handle))


def _ask(handle: object) -> tuple[tuple[int, int], ...]:
    module = checked(driver.cuModuleLoadData(_PTX))
    try:
        kernel = checked(driver.cuModuleGetFunction(module, b"empty"))
        which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        shared_bytes = checked(driver.cuDeviceGetAttribute(which, handle))
        attributes = driver.CUfunction_attribute
        larger = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(kernel, larger, shared_bytes))
        # Clusters of more than 8 blocks, which not every GPU of an architecture has to run.
        checked(driver.cuFuncSetAttribute(kernel, attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        found = [(size, _clusters(kernel, size, shared_bytes)) for size in SIZES]
    finally:
        checked(driver.cuModuleUnload(module))
    return tuple((size, clusters) for size, clusters in found if clusters)


def _clusters(kernel: object, size: int, shared_bytes: int) -> int:
    """0 where the GPU runs no cluster of that size."""
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    value = driver.CUlaunchAttributeValue()
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = size, 1, 1
    attribute.value = value
    launch = driver.CUlaunchConfig()
    launch.gridDimX, launch.gridDimY, launch.gridDimZ = size, 1, 1
    launch.blockDimX, launch.blockDimY, launch.blockDimZ = _THREADS, 1, 1
    launch.sharedMemBytes = shared_bytes
    launch.numAttrs = 1
    launch.attrs = [attribute]
    return int(checked(driver.cuOccupancyMaxActiveClusters(kernel, launch)))
