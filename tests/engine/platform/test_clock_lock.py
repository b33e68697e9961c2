"""Against a fake NVML and real processes; no test locks a clock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmtune.engine import cli
from gemmtune.engine.cli import campaigns, gpus
from gemmtune.engine.platform.clock_lock import ClockLock
from gemmtune.engine.records.errors import DeviceError
from gemmtune.engine.store.landscapes.embedded import embedded

FAKE = Path(__file__).parent / "fake_nvml"
GPU = "GPU-5a1e"
LOCK, RESTORE = f"nvmlDeviceSetGpuLockedClocks {GPU} 1500 1500", f"nvmlDeviceResetGpuLockedClocks {GPU}"
LOCKED = f"the SM clock of {GPU} is locked at 1500 MHz until this ends"
PATIENCE_SECONDS = 60.0

DRIVER = f"""
import subprocess, sys
from gemmtune.engine.platform.clock_lock import ClockLock

with ClockLock({GPU!r}, 1500, lambda line: None):
    subprocess.Popen(["sleep", "300"], stdout=subprocess.DEVNULL)
    print("entered", flush=True)
    sys.stdin.read()
"""


class Log:
    """What was asked of the fake."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines() if self.path.exists() else []

    def calls(self) -> list[str]:
        """The calls that change a setting."""
        calls = [line.partition(" ")[2] for line in self.lines()]
        return [call for call in calls if "Get" not in call and call != "nvmlInit"]

    def holder(self) -> int:
        """The process that locked."""
        return next(int(line.split()[0]) for line in self.lines() if line.endswith(LOCK))


@pytest.fixture
def nvml(tmp_path, monkeypatch):
    """The fake is what every process started from here on finds as NVML."""
    path = os.pathsep.join(filter(None, [str(FAKE), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    monkeypatch.setenv("FAKE_NVML_LOG", str(tmp_path / "nvml.log"))
    return Log(tmp_path / "nvml.log")


@pytest.fixture
def driver(nvml):
    """A process that has locked the clocks, has a worker, and leads a process group of its own."""
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
    """Whether the clocks were restored, once; waits for it."""
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


def test_restores_when_the_driver_is_killed_though_its_worker_lives_on(nvml, driver):
    driver.kill()
    assert restored(nvml)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_restores_when_the_drivers_group_is_ended(nvml, driver, number):
    os.killpg(driver.pid, number)
    assert restored(nvml)


def test_the_holder_outlives_polite_signals_and_still_restores(nvml, driver):
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(nvml.holder(), number)
    driver.stdin.close()
    assert driver.wait(PATIENCE_SECONDS) == 0
    assert nvml.calls() == [LOCK, RESTORE]


@pytest.mark.parametrize(
    ("error", "reason"), [("NoPermission", "NVML: Insufficient Permissions"), ("NotSupported", "NVML: Not Supported")]
)
def test_without_the_right_it_says_so_in_one_line_and_goes_on(nvml, monkeypatch, error, reason):
    monkeypatch.setenv("FAKE_NVML_FAILS", f"nvmlDeviceSetGpuLockedClocks={error}")
    said = []
    with ClockLock(GPU, 1500, said.append):
        assert said == [f"clocks are not locked: {reason}; going on with the clocks as they are"]
    assert nvml.calls() == [LOCK]
    assert len(said) == 1


def test_a_process_that_cannot_even_start_is_no_reason_to_stop(nvml, tmp_path, monkeypatch, capfd):
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


def test_says_how_to_restore_the_clocks_when_it_could_not(nvml, monkeypatch, capfd):
    monkeypatch.setenv("FAKE_NVML_FAILS", "nvmlDeviceResetGpuLockedClocks=NotSupported")
    said = []
    with ClockLock(GPU, 1500, said.append):
        pass
    way_out = f"nvidia-smi --id={GPU} --reset-gpu-clocks"
    assert said == [LOCKED, f"the SM clock of {GPU} may still be locked at 1500 MHz; restore it with {way_out}"]


TUNE = ("tune", "--problem", "16x4096x4096:bf16:nt", "--sampler", "random", "--budget", "2")


def replayed() -> list[str]:
    return [word for path in embedded() for word in ("--replay", str(path))]


@pytest.mark.parametrize("flags", [(), ("--lock-clocks", "1500")])
def test_a_replayed_campaign_locks_nothing_with_the_flag_or_without(nvml, tmp_path, flags):
    command = [sys.executable, "-m", "gemmtune", *TUNE, *replayed(), *flags]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert nvml.calls() == []
    assert ("clocks are not locked: recorded landscapes answer" in done.stderr) == bool(flags)


class Measuring:
    """A replaying executor that does not look like one."""

    def __init__(self, executor) -> None:
        self._executor = executor

    def __getattr__(self, name):
        return getattr(self._executor, name)


@pytest.mark.parametrize(("flags", "calls"), [((), []), (("--lock-clocks", "1500"), [LOCK, RESTORE])])
def test_a_measuring_campaign_locks_only_on_request(nvml, tmp_path, monkeypatch, capsys, flags, calls):
    source = campaigns.origin

    def measuring(*arguments):
        target, searches, executor = source(*arguments)
        return target, searches, Measuring(executor)

    monkeypatch.setattr(campaigns, "origin", measuring)
    monkeypatch.setattr(gpus, "equal_gpus", lambda: (GPU,))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["gemmtune", *TUNE, *replayed(), *flags])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    assert nvml.calls() == calls
    assert (LOCKED in capsys.readouterr().err) == bool(flags)


@pytest.mark.parametrize("command", ["tune", "record"])
def test_the_help_warns_of_what_the_flag_changes(command, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["gemmtune", command, "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    helped = " ".join(capsys.readouterr().out.split())
    assert "--lock-clocks MHZ" in helped
    assert "only for a machine that is yours" in helped
