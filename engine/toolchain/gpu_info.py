"""Query the CUDA driver for the GPUs of this machine."""

import os
import uuid
from dataclasses import replace

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.device import Device
from gemmtune.engine.toolchain.installed import install_command
from gemmtune.engine.toolchain.occupancy import active_clusters
from gemmtune.engine.toolchain.telemetry import gpu_names


def present_device() -> Device | None:
    """Return the record of the first visible GPU; None without a GPU, a driver or cuda-bindings.

    The record is the catalogue's if it knows the GPU's name, else the driver's. The number of active clusters is the
    driver's in any case, because GPUs of one model differ. No CUDA context stays open.
    """
    gpus = _visible_gpus()
    if not gpus:
        return None
    handle, name, _ = gpus[0]
    device = catalogue.by_name(name) or _read(handle, name)
    return replace(device, active_clusters=_clusters() or device.active_clusters) if device.has_clusters else device


def equal_gpus() -> tuple[str, ...]:
    """Return the UUIDs of all visible GPUs with the name of the first, in CUDA's order, without a CUDA context."""
    gpus = _visible_gpus()
    return tuple(own for _, name, own in gpus if name == gpus[0][1])


def visible_board() -> str:
    """Return the UUID of the first visible GPU; empty without one."""
    gpus = _visible_gpus()
    return gpus[0][2] if gpus else ""


def why_no_gpu() -> str:
    """Return why `present_device` finds no GPU, with the way out."""
    names = gpu_names()
    if not names:
        return "no NVIDIA GPU, or no driver, is here: see what nvidia-smi says"
    try:
        import cuda.bindings.driver  # noqa: F401 (whether it is there)
    except ImportError:
        return f"{names[0]} is here, and cuda-bindings is not: {install_command('triton')}"
    return f"{names[0]} is here, and CUDA does not answer: CUDA_VISIBLE_DEVICES may hide it"


def _visible_gpus() -> list[tuple[object, str, str]]:
    """Return the driver's handle, the name and the UUID of every visible GPU, in CUDA's order.

    Where the environment hides all, the driver is not asked: in a forked process that may end it by a signal.
    """
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return []
    try:
        from cuda.bindings import driver
    except ImportError:
        return []
    try:
        status, *_ = driver.cuInit(0)
    except RuntimeError:  # no driver library on this machine
        return []
    if status != driver.CUresult.CUDA_SUCCESS:
        return []
    found = []
    for number in range(driver.cuDeviceGetCount()[1]):
        handle = driver.cuDeviceGet(number)[1]
        name = driver.cuDeviceGetName(128, handle)[1].split(b"\0")[0].decode()
        found.append((handle, name, f"GPU-{uuid.UUID(bytes=bytes(driver.cuDeviceGetUuid(handle)[1].bytes))}"))
    return found


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
        # double data rate: two transfers per clock
        memory_bandwidth_gb_s=2 * attribute("MEMORY_CLOCK_RATE") * attribute("GLOBAL_MEMORY_BUS_WIDTH") // 8_000_000,
        source="read from the CUDA driver",
    )


def _clusters() -> tuple[tuple[int, int], ...]:
    """Return the active clusters of the first visible GPU; empty if the driver refuses."""
    try:
        return active_clusters(0)
    except RuntimeError:
        return ()
