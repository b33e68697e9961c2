"""What NVML reports of a GPU: clocks, temperature, power."""

from __future__ import annotations

import pynvml

from gemmtune.engine.records.measurement import DeviceState

__all__ = ["Telemetry", "gpu_names"]


class Telemetry:
    """Reads one GPU's state."""

    def __init__(self, uuid: str) -> None:
        """Attach to the GPU of this UUID (`GPU-…`).

        Raises:
            pynvml.NVMLError: there is no driver or no such GPU.
        """
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)

    def read(self) -> DeviceState:
        """The state now; a few hundred microseconds."""
        return DeviceState(
            sm_clock_mhz=pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_MEM),
            temperature_c=pynvml.nvmlDeviceGetTemperature(self._handle, pynvml.NVML_TEMPERATURE_GPU),
            power_mw=pynvml.nvmlDeviceGetPowerUsage(self._handle),
        )


def gpu_names() -> tuple[str, ...]:
    """The names of the GPUs the driver reports; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    handles = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount()))
    return tuple(pynvml.nvmlDeviceGetName(handle) for handle in handles)
