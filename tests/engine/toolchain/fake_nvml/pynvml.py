"""Stands in for NVML, first on a process's path: no call reaches a GPU.

FAKE_NVML_LOG names the file that each call is appended to; FAKE_NVML_FAILS says which calls fail and how, as
`nvmlDeviceSetGpuLockedClocks=NoPermission`, separated by commas.
"""

# ruff: noqa: N801, N802, N816, N818 -- the names are NVML's
from __future__ import annotations

import os

NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0
nvmlClocksEventReasonSwPowerCap = 0x04
nvmlClocksEventReasonHwSlowdown = 0x08
nvmlClocksEventReasonSyncBoost = 0x10
nvmlClocksEventReasonSwThermalSlowdown = 0x20
nvmlClocksEventReasonHwThermalSlowdown = 0x40
nvmlClocksEventReasonHwPowerBrakeSlowdown = 0x80
nvmlClocksEventReasonDisplayClockSetting = 0x100


class NVMLError(Exception):
    pass


class NVMLError_NoPermission(NVMLError):
    pass


class NVMLError_NotSupported(NVMLError):
    pass


class NVMLError_FunctionNotFound(NVMLError):
    pass


class NVMLError_GpuIsLost(NVMLError):
    pass


_ERRORS = {
    "NoPermission": NVMLError_NoPermission("Insufficient Permissions"),
    "NotSupported": NVMLError_NotSupported("Not Supported"),
    "FunctionNotFound": NVMLError_FunctionNotFound("Function Not Found"),
    "GpuIsLost": NVMLError_GpuIsLost("GPU is lost"),
}


def _call(name, answer, *arguments):
    if "FAKE_NVML_LOG" in os.environ:
        with open(os.environ["FAKE_NVML_LOG"], "a") as log:
            log.write(f"{os.getpid()} {' '.join(map(str, (name, *arguments)))}\n")
    fails = dict(pair.split("=") for pair in os.environ.get("FAKE_NVML_FAILS", "").split(",") if pair)
    if name in fails:
        raise _ERRORS[fails[name]]
    return answer


def nvmlInit():
    return _call("nvmlInit", None)


def nvmlSystemGetDriverVersion():
    return _call("nvmlSystemGetDriverVersion", "580.95.05")


def nvmlDeviceGetCount():
    return _call("nvmlDeviceGetCount", 0)


def nvmlDeviceGetHandleByUUID(uuid):
    return _call("nvmlDeviceGetHandleByUUID", uuid, uuid)


def nvmlDeviceGetClockInfo(handle, clock):
    return _call("nvmlDeviceGetClockInfo", {NVML_CLOCK_SM: 1755, NVML_CLOCK_MEM: 3201}[clock], handle, clock)


def nvmlDeviceGetMaxClockInfo(handle, clock):
    return _call("nvmlDeviceGetMaxClockInfo", {NVML_CLOCK_SM: 1980, NVML_CLOCK_MEM: 3201}[clock], handle, clock)


def nvmlDeviceGetTemperature(handle, sensor):
    return _call("nvmlDeviceGetTemperature", 41, handle, sensor)


def nvmlDeviceGetPowerUsage(handle):
    return _call("nvmlDeviceGetPowerUsage", 432_100, handle)


def nvmlDeviceGetTotalEnergyConsumption(handle):
    return _call("nvmlDeviceGetTotalEnergyConsumption", 123_456_789_012, handle)


def nvmlDeviceGetCurrentClocksEventReasons(handle):
    return _call("nvmlDeviceGetCurrentClocksEventReasons", nvmlClocksEventReasonSwPowerCap, handle)


def nvmlDeviceGetCurrentClocksThrottleReasons(handle):
    return _call("nvmlDeviceGetCurrentClocksThrottleReasons", nvmlClocksEventReasonHwSlowdown, handle)


def nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz):
    return _call("nvmlDeviceGetSupportedGraphicsClocks", [1980, 1500, 345], handle, memory_mhz)


def nvmlDeviceSetGpuLockedClocks(handle, low_mhz, high_mhz):
    return _call("nvmlDeviceSetGpuLockedClocks", None, handle, low_mhz, high_mhz)


def nvmlDeviceResetGpuLockedClocks(handle):
    return _call("nvmlDeviceResetGpuLockedClocks", None, handle)
