"""What CuTe kernels ask of a GPU while they are compiled, answered for one that is not there. Imports cutlass."""

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
    """The target as cutlass.operators writes it, `90a` for sm_90a."""
    return device.arch.removeprefix("sm_")


@contextlib.contextmanager
def driver_of(device: Device) -> Iterator[None]:
    """Answer from the Device record what `cutlass.utils.HardwareInfo` and the compiler would ask the CUDA driver.

    A builder must not ask it: cuInit crashes in a process that was forked from one that has imported the compiler (a
    host with a GPU, CUDA 13.0, nvidia-cutlass-dsl 4.8.1, 2026-11-21).
    """
    settings = CuTeDSL._get_dsl().envar
    settings.arch = device.arch
    try:
        with patch.object(cutlass.utils, "HardwareInfo", partial(_Hardware, device)):
            yield
    finally:
        del settings.arch  # back to whatever the environment says


def reason_of(error: BaseException) -> str:
    """One line of at most 500 characters: the kind of error with its first and last line."""
    lines = [line.strip() for line in _COLOURS.sub("", str(error)).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' … '.join(dict.fromkeys(lines[:1] + lines[-1:]))}"[:500]


class _Hardware:
    """Stands for `HardwareInfo`: whatever else is asked of it raises AttributeError."""

    def __init__(self, device: Device, device_id: int = 0) -> None:
        self._device = device

    def get_max_active_clusters(self, cluster_size: int, stream: object = None) -> int:
        return self._device.max_active_clusters(cluster_size)

    def get_l2_cache_size_in_bytes(self) -> int:
        return self._device.l2_bytes

    def get_device_multiprocessor_count(self) -> int:
        return self._device.sm_count
