from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from gemmtune.engine.records.measurement import DeviceState
from gemmtune.engine.toolchain import telemetry
from gemmtune.engine.toolchain.gpu_info import present_device
from gemmtune.engine.toolchain.telemetry import Telemetry

FAKE = Path(__file__).parent / "fake_nvml" / "pynvml.py"


@pytest.fixture
def nvml(monkeypatch):
    """Put the fake in NVML's place."""
    spec = importlib.util.spec_from_file_location("fake_pynvml", FAKE)
    fake = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fake)
    monkeypatch.setattr(telemetry, "pynvml", fake)
    return fake


def test_a_reading_is_what_nvml_reports(nvml):
    assert Telemetry("GPU-1").read() == DeviceState(1755, 3201, 41, 432_100, ("sw_power_cap",), "580.95.05")


def test_energy_is_nvmls_counter_in_millijoules(nvml):
    assert Telemetry("GPU-1").energy_mj() == 123_456_789_012


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [
        (0x000, ()),
        (0x001, ()),  # idle
        (0x002, ()),  # the owner's setting
        (0x004, ("sw_power_cap",)),
        (0x048, ("hw_slowdown", "hw_thermal_slowdown")),
        (
            0x1FF,
            (
                "display_clock_setting",
                "hw_power_brake_slowdown",
                "hw_slowdown",
                "hw_thermal_slowdown",
                "sw_power_cap",
                "sw_thermal_slowdown",
                "sync_boost",
            ),
        ),
        (0x8000_0004, ("sw_power_cap",)),  # and one that is not known yet
    ],
)
def test_throttle_reasons_are_nvmls_names_sorted(nvml, monkeypatch, bits, reasons):
    monkeypatch.setattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda handle: bits)
    assert Telemetry("GPU-1").read().throttle_reasons == reasons


def test_throttle_reasons_match_the_bits_of_the_real_nvml(nvml):
    import pynvml

    names = [name for name in vars(nvml) if name.startswith("nvmlClocksEventReason")]
    assert len(names) == 7
    assert {name: getattr(nvml, name) for name in names} == {name: getattr(pynvml, name) for name in names}


def test_an_old_driver_is_queried_by_the_older_name(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_FAILS", "nvmlDeviceGetCurrentClocksEventReasons=FunctionNotFound")
    assert Telemetry("GPU-1").read().throttle_reasons == ("hw_slowdown",)


def test_an_unsupported_value_is_none_and_the_rest_is_read(nvml, monkeypatch):
    unsupported = ("PowerUsage", "TotalEnergyConsumption", "CurrentClocksEventReasons")
    monkeypatch.setenv("FAKE_NVML_FAILS", ",".join(f"nvmlDeviceGet{name}=NotSupported" for name in unsupported))
    reading = Telemetry("GPU-1")
    assert reading.read() == DeviceState(1755, 3201, 41, None, (), "580.95.05")
    assert reading.energy_mj() is None


@pytest.mark.parametrize(
    ("clocks_mhz", "bits", "throttled"),
    [
        ((1980,), 0x000, False),
        ((1980,), 0x003, False),  # idle, and the owner's setting: neither is a limit
        ((1980,), 0x004, True),
        ((1980, 1860), 0x000, True),
        ((1860, 1980), 0x000, False),
        ((1410, 1410), 0x000, False),  # locked
    ],
)
def test_a_reason_or_a_lower_clock_means_possible_throttling(nvml, monkeypatch, clocks_mhz, bits, throttled):
    monkeypatch.setattr(telemetry, "_FRESH_SECONDS", -1)
    monkeypatch.setattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", lambda handle: bits)
    reading = Telemetry("GPU-1")
    for clock_mhz in clocks_mhz:
        monkeypatch.setattr(nvml, "nvmlDeviceGetClockInfo", lambda handle, kind, mhz=clock_mhz: mhz)
        answer = reading.may_be_throttled()
    assert answer is throttled


def test_an_unreported_clock_means_possible_throttling(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_FAILS", "nvmlDeviceGetClockInfo=NotSupported")
    assert Telemetry("GPU-1").may_be_throttled()


def test_a_lost_gpu_is_an_error(nvml, monkeypatch):
    monkeypatch.setenv("FAKE_NVML_FAILS", "nvmlDeviceGetTemperature=GpuIsLost")
    with pytest.raises(nvml.NVMLError, match="GPU is lost"):
        Telemetry("GPU-1").read()


@pytest.mark.gpu
def test_the_present_gpu_reports_plausible_values():
    if present_device() is None:
        pytest.skip("no NVIDIA GPU on this machine")
    from gemmtune.engine.toolchain.gpu_info import equal_gpus

    gpu = Telemetry(equal_gpus()[0])
    before, state, after = gpu.energy_mj(), gpu.read(), gpu.energy_mj()
    assert 0 < state.sm_clock_mhz <= 4000
    assert 0 < state.temperature_c < 120
    assert 0 < before <= after
