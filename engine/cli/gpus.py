"""The GPUs of this machine, where a command measures on them."""

from __future__ import annotations

from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError

__all__ = ["gpu_or_fail"]


def gpu_or_fail(command: str) -> Device:
    """The GPU that a command measures on.

    Raises:
        DeviceError: there is none, or nothing to measure it with.
    """
    device = present_device()
    if device is None:
        raise DeviceError(f"{command} measures, and there is no GPU here (or gemmtune[triton] is not installed)")
    return device
