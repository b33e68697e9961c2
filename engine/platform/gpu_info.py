"""Which GPU is there, as a Device record."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device

__all__ = ["present_device"]


def present_device() -> Device | None:
    """The first visible GPU: the catalogue's record where its name is known there, else one read from the driver.

    How many clusters it runs at once is always the driver's answer, because boards of one model differ; where it gives
    none, the record's. None where there is no driver, no GPU, or cuda-bindings is not installed. No CUDA context is
    left behind.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return None
    try:
        status, *_ = driver.cuInit(0)
    except RuntimeError:  # no driver library on this machine
        return None
    if status != driver.CUresult.CUDA_SUCCESS or not driver.cuDeviceGetCount()[1]:
        return None
    handle = driver.cuDeviceGet(0)[1]
    name = driver.cuDeviceGetName(128, handle)[1].split(b"\0")[0].decode()
    device = catalogue.by_name(name) or _read(handle, name)
    return replace(device, active_clusters=_clusters() or device.active_clusters) if device.has_clusters else device


def _read(handle: object, name: str) -> Device:
    from cuda.bindings import driver

    def attribute(suffix: str) -> int:
        which = getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{suffix}")
        return int(driver.cuDeviceGetAttribute(which, handle)[1])

    major, minor = attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")
    return Device(
        sku=name.removeprefix("NVIDIA ").replace(" ", "-"),
        name=name,
        arch=f"sm_{major}{minor}{'a' if major >= 9 else ''}",
        sm_count=attribute("MULTIPROCESSOR_COUNT"),
        shared_memory_per_block_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        shared_memory_per_sm_bytes=attribute("MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        l2_bytes=attribute("L2_CACHE_SIZE"),
        registers_per_sm=attribute("MAX_REGISTERS_PER_MULTIPROCESSOR"),
        max_threads_per_sm=attribute("MAX_THREADS_PER_MULTIPROCESSOR"),
        max_threads_per_block=attribute("MAX_THREADS_PER_BLOCK"),
        warp_size=attribute("WARP_SIZE"),
        boost_clock_mhz=attribute("CLOCK_RATE") // 1000,
        # double data rate: two transfers a clock
        memory_bandwidth_gb_s=2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") // 8_000_000,
        source="read from the CUDA driver",
    )


@cache
def _clusters() -> tuple[tuple[int, int], ...]:
    """The first visible GPU's, asked once a process; empty where it does not answer, which timing will then tell of."""
    from cuda.bindings import driver

    from gemmtune.engine.platform.occupancy import active_clusters

    try:
        return active_clusters(driver.cuDeviceGet(0)[1])
    except RuntimeError:
        return ()
