"""Clock locks, against a fake NVML and with real processes; no test locks a clock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmtune.engine import cli
from gemmtune.engine.campaign import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.toolchain.clock_lock import ClockLock

pytestmark = pytest.mark.slow(8)

FAKE = Path(__file__).parent / "fake_nvml"
GPU = "GPU-5a1e"
LOCK, RESTORE = f"nvmlDeviceSetGpuLockedClocks {GPU} 1500 1500", f"nvmlDeviceResetGpuLockedClocks {GPU}"
LOCKED = f"the SM clock of {GPU} is locked at 1500 MHz until this ends"
PATIENCE_SECONDS = 60.0

DRIVER = f"""
import subprocess, sys
from gemmtune.engine.toolchain.clock_lock import ClockLock

with ClockLock({GPU!r}, 1500, lambda line: None):
    subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL)
    print("entered", flush=True)
    sys.stdin.read()
"""


class Log:
    """Calls that the fake NVML received."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def calls(self) -> list[str]:
        """Return the calls that change a setting."""
        calls = [line.partition(" ")[2] for line in self.lines()]
        return [call for call in calls if "Get" not in call and call != "nvmlInit"]

    def holder(self) -> int:
        """Return the process that locked the clock."""
        return next(int(line.split()[0]) for line in self.lines() if line.endswith(LOCK))


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    """Make every process started from here on import the fake NVML."""
    path = os.pathsep.join(filter(None, [str(FAKE), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("FAKE_NVML_LOG", str(tmp_path / "nvml.log"))
    return Log(tmp_path / "nvml.log")


@pytest.fixture
def driver(nvml, default_signals):
    """Start a process that has locked the clocks, has a child, and leads a process group of its own."""
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            assert process.stdout.readline() == "entered\n"
            assert nvml.calls() == [LOCK]
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def restored(nvml) -> bool:
    """Wait until the clocks are restored, and return whether that happened exactly once."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while RESTORE not in nvml.calls() and time.monotonic() < deadline:
        time.sleep(0.02)
    return nvml.calls() == [LOCK, RESTORE]


def test_locks_for_the_block_and_restores_after_it(nvml):
    said = []
    with ClockLock(GPU, 1500, said.append):
        assert nvml.calls() == [LOCK]
    assert nvml.calls() == [LOCK, RESTORE]
    assert said == [LOCKED]


def test_restores_before_an_exception_goes_on(nvml):
    with pytest.raises(ZeroDivisionError), ClockLock(GPU, 1500, [].append):
        raise ZeroDivisionError
    assert nvml.calls() == [LOCK, RESTORE]


def test_restores_when_the_driver_is_killed_though_its_child_lives_on(nvml, driver):
    driver.kill()
    assert restored(nvml)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_restores_when_the_drivers_group_is_ended(nvml, driver, number):
    os.killpg(driver.pid, number)
    assert restored(nvml)


def test_the_holding_process_ignores_signals_and_still_restores(nvml, driver):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(nvml.holder(), number)
    driver.stdin.close()
    assert driver.wait(PATIENCE_SECONDS) == 0
    assert nvml.calls() == [LOCK, RESTORE]


@pytest.mark.parametrize(
    ("error", "reason"), [("NoPermission", "NVML: Insufficient Permissions"), ("NotSupported", "NVML: Not Supported")]
)
def test_without_permission_one_line_says_so_and_the_campaign_goes_on(nvml, monkeypatch, error, reason):
    monkeypatch.setenv("FAKE_NVML_FAILS", f"nvmlDeviceSetGpuLockedClocks={error}")
    said = []
    with ClockLock(GPU, 1500, said.append):
        assert said == [f"clocks are not locked: {reason}; going on with the clocks as they are"]
    assert nvml.calls() == [LOCK]
    assert len(said) == 1


def test_a_campaign_goes_on_if_the_locking_process_cannot_start(nvml, tmp_path, monkeypatch, capfd):
    (tmp_path / "pynvml.py").write_text("raise SystemExit(7)")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    said = []
    with ClockLock(GPU, 1500, said.append):
        pass
    why = "the process that locks them ended with status 7"
    assert said == [f"clocks are not locked: {why}; going on with the clocks as they are"]


@pytest.mark.parametrize("mhz", [344, 1981])
def test_a_clock_the_gpu_does_not_have_is_refused_with_the_bounds(nvml, mhz):
    refused = pytest.raises(DeviceError, match=f"no SM clock of {mhz} MHz: this GPU has 345 to 1980 MHz")
    with refused, ClockLock(GPU, mhz, [].append):
        pytest.fail("the block was entered")
    assert nvml.calls() == []


@pytest.mark.parametrize("mhz", [345, 1980])
def test_the_bounds_themselves_can_be_locked(nvml, mhz):
    with ClockLock(GPU, mhz, [].append):
        pass
    assert nvml.calls() == [f"nvmlDeviceSetGpuLockedClocks {GPU} {mhz} {mhz}", RESTORE]


def test_a_failed_restore_names_the_command_that_restores(nvml, monkeypatch, capfd):
    monkeypatch.setenv("FAKE_NVML_FAILS", "nvmlDeviceResetGpuLockedClocks=NotSupported")
    said = []
    with ClockLock(GPU, 1500, said.append):
        pass
    way_out = f"nvidia-smi --id={GPU} --reset-gpu-clocks"
    assert said == [LOCKED, f"the SM clock of {GPU} may still be locked at 1500 MHz; restore it with {way_out}"]


TUNE = ("tune", "--problem", "16x4096x4096:bf16:nt", "--sampler", "random", "--budget", "2", "--no-report")


def replayed() -> list[str]:
    return [word for path in embedded() for word in ("--replay", str(path))]


def test_a_replayed_campaign_locks_nothing(nvml, tmp_path):
    command = [sys.executable, "-m", "gemmtune", *TUNE, *replayed(), "--lock-clocks", "1500"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert nvml.calls() == []
    assert "clocks are not locked: recorded landscapes answer" in done.stderr


@pytest.mark.parametrize(("clock_mhz", "calls"), [(None, []), (1500, [LOCK, RESTORE])])
def test_a_measured_backend_locks_the_clocks_only_on_request(nvml, monkeypatch, clock_mhz, calls):
    monkeypatch.setattr(measured_backend, "equal_gpus", lambda: (GPU,))
    executor, lines = SimpleNamespace(close=lambda: None, parallel=1), []
    plan = Plan(problems=(Problem.parse("16x4096x4096:bf16:nt"),), sampler="random", budget=2)
    backend = measured_backend.measured_backend(
        plan, catalogue.device("H200"), lambda spaces: executor, clock_mhz=clock_mhz, notify=lines.append
    )
    backend.close()
    assert nvml.calls() == calls
    assert lines == [LOCKED][: len(calls)]


@pytest.mark.parametrize("command", ["tune", "sweep"])
def test_the_help_warns_of_what_the_flag_changes(command, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gemmtune", command, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    helped = " ".join(capsys.readouterr().out.split())
    assert "--lock-clocks MHZ" in helped
    assert "use it only on a machine that is yours" in helped
