"""Answer the questions that CuTe kernels ask a GPU while they are compiled. Imports cutlass."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from functools import partial
from unittest.mock import patch

import cutlass.utils
from cutlass.cutlass_dsl import CuTeDSL

from gemmtune.engine.records.device import Device

__all__ = ["driver_of", "reason_of", "target_of"]

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def target_of(device: Device) -> str:
    """Return the target as cutlass.operators writes it: `90a` for sm_90a."""
    return device.arch.removeprefix("sm_")


@contextlib.contextmanager
def driver_of(device: Device) -> Iterator[None]:
    """Answer `cutlass.utils.HardwareInfo` and the compiler from the Device record instead of the CUDA driver.

    A builder must not call the driver: cuInit crashes in a process forked from one that has imported the compiler (CUDA
    13.0, nvidia-cutlass-dsl 4.8.1).
    """
    settings = CuTeDSL._get_dsl().envar
    settings.arch = device.arch
    try:
        with patch.object(cutlass.utils, "HardwareInfo", partial(_Hardware, device)):
            yield
    finally:
        del settings.arch  # the environment decides again


def reason_of(error: BaseException) -> str:
    """Return the kind of error with its first and last lines, as one line of at most 500 characters."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' … '.join(dict.fromkeys(lines[:1] + lines[-1:]))}"[:500]


class _Hardware:
    """Replacement of `HardwareInfo`; other questions raise AttributeError."""

    def __init__(self, device: Device, device_id: int = 0) -> None:
        self._device = device

    def get_max_active_clusters(self, cluster_size: int, stream: object = None) -> int:
        return self._device.max_active_clusters(cluster_size)

    def get_l2_cache_size_in_bytes(self) -> int:
        return self._device.l2_bytes

    def get_device_multiprocessor_count(self) -> int:
        return self._device.sm_count
