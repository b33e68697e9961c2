"""Ask the CUDA driver how many thread block clusters a GPU runs at once. Needs cuda-bindings; launches nothing.

The answer is that of `cutlass.utils.HardwareInfo.get_max_active_clusters`, which CuTe's dispatchers call.
"""

from functools import cache

from gemmtune.engine.toolchain.cuda_driver import checked

CLUSTER_SIZES = (1, 2, 4, 8, 16)
"""Cluster sizes to ask about, in thread blocks."""

_PTX = b".version 7.8\n.target sm_90\n.address_size 64\n.visible .entry empty() { ret; }\n"
_THREADS = 128


def clusters_at_once(gpu: int, blocks: int) -> int:
    """Return the number of clusters of so many blocks that a GPU runs at once, one block per SM.

    Args:
        gpu: number of the GPU among those that the process sees.
        blocks: blocks of a cluster, one of CLUSTER_SIZES.

    Raises:
        RuntimeError: the GPU runs no such clusters, or the driver does not answer.
    """
    found = dict(active_clusters(gpu))
    if blocks not in found:
        raise RuntimeError(f"GPU {gpu} runs no clusters of {blocks} blocks; it runs {sorted(found)}")
    return found[blocks]


@cache
def active_clusters(gpu: int) -> tuple[tuple[int, int], ...]:
    """Return (cluster size, active clusters) for each of CLUSTER_SIZES that a GPU runs, at one block per SM.

    The GPU, by its number, has compute capability 9.0 or later; earlier ones have no clusters. CUDA is initialised.

    Raises:
        RuntimeError: the driver does not answer.
    """
    from cuda.bindings import driver

    handle = checked(driver.cuDeviceGet(gpu))
    context = checked(driver.cuDevicePrimaryCtxRetain(handle))
    try:
        checked(driver.cuCtxPushCurrent(context))
        try:
            return _query(handle)
        finally:
            checked(driver.cuCtxPopCurrent())
    finally:
        checked(driver.cuDevicePrimaryCtxRelease(handle))


def _query(handle: object) -> tuple[tuple[int, int], ...]:
    from cuda.bindings import driver

    module = checked(driver.cuModuleLoadData(_PTX))
    try:
        kernel = checked(driver.cuModuleGetFunction(module, b"empty"))
        which = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        shared_bytes = checked(driver.cuDeviceGetAttribute(which, handle))
        attributes = driver.CUfunction_attribute
        larger = attributes.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(driver.cuFuncSetAttribute(kernel, larger, shared_bytes))
        # Allow clusters of more than 8 blocks, which some GPUs of an architecture cannot run.
        checked(driver.cuFuncSetAttribute(kernel, attributes.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1))
        found = [(size, _clusters(kernel, size, shared_bytes)) for size in CLUSTER_SIZES]
    finally:
        checked(driver.cuModuleUnload(module))
    return tuple((size, clusters) for size, clusters in found if clusters)


def _clusters(kernel: object, size: int, shared_bytes: int) -> int:
    """Return the number of active clusters of this size; 0 if the GPU cannot run one."""
    from cuda.bindings import driver

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
