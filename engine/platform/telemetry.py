"""What NVML reports of a GPU: clocks, temperature, power, what holds the clocks back, energy."""

from __future__ import annotations

import time
from collections.abc import Callable

import pynvml

from gemmtune.engine.records.measurement import DeviceState

__all__ = ["Telemetry", "gpu_names"]

# Not among them: gpu_idle, which is no limit, and applications_clocks_setting, which is the owner's choice and not an
# event: with it the clock that was read is the clock that was asked for.
_THROTTLE_REASONS = {
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display_clock_setting",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "hw_power_brake_slowdown",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hw_thermal_slowdown",
    pynvml.nvmlClocksEventReasonSwPowerCap: "sw_power_cap",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "sw_thermal_slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync_boost",
}


_FRESH_SECONDS = 10e-3


class Telemetry:
    """Reads one GPU. What the GPU does not support is None, and no reason to end a campaign."""

    def __init__(self, uuid: str) -> None:
        """Attach to the GPU of this UUID (`GPU-…`).

        Raises:
            pynvml.NVMLError: there is no driver or no such GPU.
        """
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._last: tuple[float, DeviceState] | None = None
        self._highest_mhz = 0

    def read(self) -> DeviceState:
        """The state now, or up to 10 ms ago: NVML's own readings are no newer, and five questions take 0.1 ms.

        Raises:
            pynvml.NVMLError: the GPU is lost.
        """
        now = time.monotonic()
        if self._last is None or now - self._last[0] > _FRESH_SECONDS:
            self._last = now, self._read()
            self._highest_mhz = max(self._highest_mhz, self._last[1].sm_clock_mhz or 0)
        return self._last[1]

    def may_be_throttled(self) -> bool:
        """Whether anything may hold the clocks back, now or up to 10 ms ago.

        NVML names a reason, or the SM clock is lower than it has been; or the GPU does not report it.

        Raises:
            pynvml.NVMLError: the GPU is lost.
        """
        state = self.read()
        clock_mhz = state.sm_clock_mhz
        return clock_mhz is None or clock_mhz < self._highest_mhz or bool(state.throttle_reasons)

    def _read(self) -> DeviceState:
        return DeviceState(
            sm_clock_mhz=self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            memory_clock_mhz=self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
            temperature_c=self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            power_mw=self._ask(pynvml.nvmlDeviceGetPowerUsage),
            throttle_reasons=self._throttle_reasons(),
        )

    def energy_mj(self) -> int | None:
        """Energy drawn since the driver was loaded, in millijoules; None where the GPU does not count it.

        Raises:
            pynvml.NVMLError: the GPU is lost.
        """
        return self._ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)

    def _throttle_reasons(self) -> tuple[str, ...]:
        try:
            bits = self._ask(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        except pynvml.NVMLError_FunctionNotFound:  # a driver before 535 knows it by its older name
            bits = self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return tuple(name for bit, name in _THROTTLE_REASONS.items() if bits and bits & bit)

    def _ask(self, question: Callable[..., int], *arguments: int) -> int | None:
        try:
            return question(self._handle, *arguments)
        except pynvml.NVMLError_NotSupported:
            return None


def gpu_names() -> tuple[str, ...]:
    """The names of the GPUs the driver reports; none where there is no driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    handles = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount()))
    return tuple(pynvml.nvmlDeviceGetName(handle) for handle in handles)
