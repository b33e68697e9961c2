"""Read clocks, temperature, power, throttle reasons and energy of a GPU from NVML."""

import time
from collections.abc import Callable

import pynvml

from gemmtune.engine.records.measurement import DeviceState

# Left out: gpu_idle, which is no limit, and applications_clocks_setting, which is the owner's choice of clocks.
_THROTTLE_REASONS = {
    pynvml.nvmlClocksEventReasonDisplayClockSetting: "display_clock_setting",
    pynvml.nvmlClocksEventReasonHwPowerBrakeSlowdown: "hw_power_brake_slowdown",
    pynvml.nvmlClocksEventReasonHwSlowdown: "hw_slowdown",
    pynvml.nvmlClocksEventReasonHwThermalSlowdown: "hw_thermal_slowdown",
    pynvml.nvmlClocksEventReasonSwPowerCap: "sw_power_cap",
    pynvml.nvmlClocksEventReasonSwThermalSlowdown: "sw_thermal_slowdown",
    pynvml.nvmlClocksEventReasonSyncBoost: "sync_boost",
}
_FRESH_SECONDS = 10e-3  # NVML's own readings are no newer, and asking for them takes 0.1 ms


class Telemetry:
    """State of one GPU as NVML reports it; a value that the GPU does not support is None."""

    def __init__(self, uuid: str) -> None:
        """Attach to the GPU of this UUID (`GPU-…`).

        Raises:
            pynvml.NVMLError: there is no driver, or no such GPU.
        """
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        self._driver: str = pynvml.nvmlSystemGetDriverVersion()
        self._last: tuple[float, DeviceState] | None = None
        self._highest_mhz = 0

    def read(self) -> DeviceState:
        """Return the state of the GPU, at most 10 ms old.

        Raises:
            pynvml.NVMLError: the GPU is lost.
        """
        now = time.monotonic()
        if self._last is None or now - self._last[0] > _FRESH_SECONDS:
            state = DeviceState(
                sm_clock_mhz=self._query(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
                memory_clock_mhz=self._query(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
                temperature_c=self._query(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
                power_mw=self._query(pynvml.nvmlDeviceGetPowerUsage),
                throttle_reasons=self._throttle_reasons(),
                driver=self._driver,
            )
            self._last = now, state
            self._highest_mhz = max(self._highest_mhz, state.sm_clock_mhz or 0)
        return self._last[1]

    def may_be_throttled(self) -> bool:
        """Return whether anything may limit the clocks, by a state at most 10 ms old; raises like `read`.

        That is so if NVML names a reason, if the SM clock is below its highest reading, or if it is not reported.
        """
        state = self.read()
        clock_mhz = state.sm_clock_mhz
        return clock_mhz is None or clock_mhz < self._highest_mhz or bool(state.throttle_reasons)

    def energy_mj(self) -> int | None:
        """Return the energy since the driver was loaded, in millijoules, or None if not counted; raises like `read`."""
        return self._query(pynvml.nvmlDeviceGetTotalEnergyConsumption)

    def _throttle_reasons(self) -> tuple[str, ...]:
        try:
            bits = self._query(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        except pynvml.NVMLError_FunctionNotFound:  # the older name, for drivers before 535
            bits = self._query(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return tuple(name for bit, name in _THROTTLE_REASONS.items() if bits and bits & bit)

    def _query(self, function: Callable[..., int], *arguments: int) -> int | None:
        try:
            return function(self._handle, *arguments)
        except pynvml.NVMLError_NotSupported:
            return None


def gpu_names() -> tuple[str, ...]:
    """Return the names of all GPUs that the driver reports; empty without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    handles = (pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount()))
    return tuple(pynvml.nvmlDeviceGetName(handle) for handle in handles)
