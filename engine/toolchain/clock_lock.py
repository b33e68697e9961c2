"""Lock a GPU's SM clock for the time of a campaign, on request only: it changes the GPU for every user.

A process of its own holds the lock, and restores the clocks as soon as its standard input ends. That happens however
the campaign ends, even by SIGKILL. It runs as `python -m gemmtune.engine.toolchain.clock_lock UUID MHZ`.
"""

import signal
import subprocess
import sys
from collections.abc import Callable

import pynvml

from gemmtune.engine.records.errors import DeviceError

_LOCKED, _NOT_LOCKED, _REFUSED = "locked", "not locked", "refused"


class ClockLock:
    """Context that locks the SM clock at one value, if NVML lets this user do so."""

    def __init__(self, gpu: str, mhz: int, say: Callable[[str], None]) -> None:
        """Prepare the lock; nothing changes before the context is entered.

        Args:
            gpu: UUID of the GPU, `GPU-…`.
            mhz: SM clock in MHz. The power limit still lowers a locked clock, so choose one that every problem can run
                at.
            say: receives one line of text about the outcome of the lock, and one if the clocks were not restored.
        """
        self._gpu, self._mhz, self._say = gpu, mhz, say
        self._restorable = False

    def __enter__(self) -> None:
        """Lock the clock, or say why that failed and go on; raises DeviceError for a clock the GPU does not have."""
        # In a session of its own, which a Ctrl-C or a kill of the campaign's process group does not reach.
        self._holder = subprocess.Popen(  # noqa: S603 (our own interpreter and module)
            [sys.executable, "-P", "-m", __spec__.name, self._gpu, str(self._mhz)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._holder.stdout is not None
        reply = self._holder.stdout.readline().rstrip("\n")
        ended = f"{_NOT_LOCKED}: the process that locks them ended with status "
        outcome, _, reason = (reply or f"{ended}{self._holder.wait()}").partition(": ")
        if outcome == _LOCKED:
            self._restorable = True
            self._say(f"the SM clock of {self._gpu} is locked at {self._mhz} MHz until this ends")
            return
        self._end()
        if outcome == _REFUSED:
            raise DeviceError(reason)
        self._say(f"clocks are not locked: {reason}; going on with the clocks as they are")

    def __exit__(self, *_: object) -> None:
        if self._restorable and self._end() != 0:
            way_out = f"nvidia-smi --id={self._gpu} --reset-gpu-clocks"
            self._say(f"the SM clock of {self._gpu} may still be locked at {self._mhz} MHz; restore it with {way_out}")

    def _end(self) -> int:
        for pipe in (self._holder.stdin, self._holder.stdout):
            assert pipe is not None
            pipe.close()
        return self._holder.wait()


def _hold(gpu: str, mhz: int) -> None:
    """Lock the clock, reply in one line, wait for the end of standard input, restore the clock."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of the input is the only reason to end
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu)
        memory_mhz = pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM)
        clocks = pynvml.nvmlDeviceGetSupportedGraphicsClocks(handle, memory_mhz)
        if clocks and not min(clocks) <= mhz <= max(clocks):
            _reply(_REFUSED, f"no SM clock of {mhz} MHz: this GPU has {min(clocks)} to {max(clocks)} MHz")
            return
        pynvml.nvmlDeviceSetGpuLockedClocks(handle, mhz, mhz)
    except pynvml.NVMLError as error:
        _reply(_NOT_LOCKED, f"NVML: {error}")
        return
    try:
        _reply(_LOCKED)
        sys.stdin.read()
    finally:
        pynvml.nvmlDeviceResetGpuLockedClocks(handle)


def _reply(outcome: str, reason: str = "") -> None:
    sys.stdout.write(f"{outcome}: {reason}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _hold(sys.argv[1], int(sys.argv[2]))
