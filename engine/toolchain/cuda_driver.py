"""Check the results of CUDA driver calls, and set up functions as Triton does. Needs cuda-bindings."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuda.bindings import driver


def checked(result: tuple[Any, ...]) -> Any:  # noqa: ANN401 (cuda.bindings has no types)
    """Return the value of a driver call, or None if it has none.

    Raises:
        RuntimeError: the call failed; the message is the driver's name of the error.
    """
    status, *values = result
    if int(status):
        raise RuntimeError(f"CUDA driver: {getattr(status, 'name', status)}")
    return values[0] if values else None


def prefer_shared_memory(function: "driver.CUfunction", device: int) -> None:
    """Prefer shared memory, as Triton's loader and Inductor's launcher do (triton/backends/nvidia/driver.c).

    The preference leaves little L1, which copies of less than 16 bytes go through, so it changes the time of some
    kernels much: see experiments/launch-preference. The kernel must be timed as production launches it.
    """
    from cuda.bindings import driver

    attribute = driver.CUfunction_attribute
    optin = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    limit = checked(driver.cuDeviceGetAttribute(optin, device))
    static = checked(driver.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
    checked(driver.cuFuncSetCacheConfig(function, driver.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED))
    dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(driver.cuFuncSetAttribute(function, dynamic, limit - static))
