"""The GPUs of this machine that one campaign may use side by side."""

from __future__ import annotations

import uuid

__all__ = ["equal_gpus"]


def equal_gpus() -> tuple[str, ...]:
    """The UUIDs of the first visible GPU and of those of its name, in CUDA's order.

    Each of them, in CUDA_VISIBLE_DEVICES, chooses one. None where there is no driver, no GPU, or cuda-bindings is not
    installed. No CUDA context is created.
    """
    try:
        from cuda.bindings import driver
    except ImportError:
        return ()
    try:
        status, *_ = driver.cuInit(0)
    except RuntimeError:  # no driver library on this machine
        return ()
    if status != driver.CUresult.CUDA_SUCCESS:
        return ()
    names: dict[str, bytes] = {}
    for number in range(driver.cuDeviceGetCount()[1]):
        handle = driver.cuDeviceGet(number)[1]
        own = uuid.UUID(bytes=bytes(driver.cuDeviceGetUuid(handle)[1].bytes))
        names[f"GPU-{own}"] = driver.cuDeviceGetName(128, handle)[1]
    return tuple(gpu for gpu, name in names.items() if name == next(iter(names.values())))
