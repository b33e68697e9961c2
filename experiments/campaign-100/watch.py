"""Run a command and watch its processes and the GPU: CPU seconds by role, GPU seconds by kernels."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

EVERY_SECONDS = 0.1
ROLES = ("driver", "builders", "compilers of the builders", "GPU worker", "spare", "fork server", "others")
AT_WORK, RESTS, WAITS, SLEEPS = "at work", "rests", "waits", "sleeps"
"""Activities of a worker: running or busily waiting for the GPU; resting; waiting for a job; one of the latter two."""
_TICK_SECONDS = 1 / os.sysconf("SC_CLK_TCK")
_GPU_FILE = re.compile(r"/dev/nvidia\d+$")


@dataclass(frozen=True)
class Look:
    """State of the command at one moment, counted from its start."""

    at: float
    """Moment as returned by time.time()."""
    cpu_seconds: dict[str, float]
    """CPU seconds of the command, by role."""
    outside_seconds: float
    """CPU seconds of other processes, on the cores that the command may use."""
    workers: tuple[str, ...]
    """Activity of each GPU's worker."""
    kernel_seconds: float | None
    """Seconds in which a kernel ran, summed over all GPUs; None if NVML does not report them."""


@dataclass
class Watched:
    """Results of a command that has ended."""

    status: int | str
    """Exit status of the command, or a text that it was cut off."""
    began: float
    ended: float
    builders: int = 0
    """Largest number of builders at one time."""
    looks: list[Look] = field(default_factory=list)

    @property
    def wall_seconds(self) -> float:
        return self.ended - self.began


def watch(command: Sequence[str], seconds: float) -> Watched:
    """Run the command to its end, or for this number of seconds, and watch it."""
    found = Watched("cut", time.time(), 0.0)
    clock = time.monotonic()
    with subprocess.Popen(command) as process, _Kernels() as kernels:
        family = _Family(process.pid)
        found.looks.append(family.look(None))
        while found.status == "cut" and time.monotonic() - clock < seconds:
            with contextlib.suppress(subprocess.TimeoutExpired):
                found.status = process.wait(EVERY_SECONDS)
            found.looks.append(family.look(kernels.seconds))
            found.builders = max(found.builders, family.builders)
        if found.status == "cut":
            _end(process)
        found.ended = time.time()
    return found


def within(command: Sequence[str], seconds: float) -> Watched:
    """Run the command to its end, or for this number of seconds, without watching it."""
    found = Watched("cut", time.time(), 0.0)
    with subprocess.Popen(command) as process:
        try:
            found.status = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            _end(process)
        found.ended = time.time()
    return found


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@dataclass
class _Process:
    parent: int
    started: int
    command: str
    own: float = 0.0
    waited_for: float = 0.0
    has_gpu: bool = False


class _Family:
    """Process and its descendants, from /proc; ended ones count with their last figures."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._known: dict[tuple[int, int], _Process] = {}  # by id and start: ids come again
        self._busy_before = _busy_seconds()
        self.builders = 0

    def look(self, kernel_seconds: float | None) -> Look:
        stats = {pid: stat for pid in _pids() if (stat := _stat(pid)) is not None}
        children = defaultdict(list)
        for pid, stat in stats.items():
            children[int(stat[1])].append(pid)
        open_to, self.builders = [self._root], 0
        while open_to:
            pid = open_to.pop()
            if pid not in stats:
                continue
            open_to += children[pid]
            stat = stats[pid]
            key = pid, int(stat[19])
            process = self._known.get(key)
            if process is None:
                process = self._known[key] = _Process(int(stat[1]), int(stat[19]), "")
            if process.own < 0.5:  # it may still become what it was started for
                process.command = _command(pid)
            own, waited = (int(stat[11]) + int(stat[12])), (int(stat[13]) + int(stat[14]))
            process.own, process.waited_for = own * _TICK_SECONDS, waited * _TICK_SECONDS
            if not process.has_gpu and "spawn_main" in process.command:
                process.has_gpu = _has_gpu(pid)
        roles = self._roles()
        alive = [key for key in self._known if key[0] in stats]
        self.builders = sum(roles[key] == "builders" for key in alive)
        workers = tuple(_activity(pid, stats[pid][0]) for pid, begun in alive if roles[pid, begun] == "GPU worker")
        spent = self._cpu_seconds(roles)
        outside = max(_busy_seconds() - self._busy_before - sum(spent.values()), 0.0)
        return Look(time.time(), spent, outside, workers, kernel_seconds)

    def _cpu_seconds(self, roles: dict[tuple[int, int], str]) -> dict[str, float]:
        found = dict.fromkeys(ROLES, 0.0)
        for key, role in roles.items():
            process = self._known[key]
            if role != "compilers of the builders":  # they are counted where they are waited for
                found[role] += process.own
            if role == "builders":
                found["compilers of the builders"] += process.waited_for
        return found

    def _roles(self) -> dict[tuple[int, int], str]:
        by_pid = {pid: process for (pid, _), process in sorted(self._known.items(), key=lambda item: item[0][1])}
        servers = {pid for pid, process in by_pid.items() if "multiprocessing.forkserver" in process.command}
        servers = {pid for pid in servers if by_pid[pid].parent == self._root}
        spawned = [key for key, process in self._known.items() if "spawn_main" in process.command]
        workers = {key for key in spawned if self._known[key].has_gpu}
        workers = workers or set(sorted(spawned, key=lambda key: key[1])[:1])  # the first, where files do not tell
        roles = {}
        for key, process in self._known.items():
            if key[0] == self._root:
                roles[key] = "driver"
            elif key[0] in servers:
                roles[key] = "fork server"
            elif process.parent in servers:
                roles[key] = "builders"
            elif process.parent != self._root:
                roles[key] = "compilers of the builders"
            elif key in workers:
                roles[key] = "GPU worker"
            else:
                roles[key] = "spare" if key in spawned else "others"
        return roles


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[str] | None:
    """Return the fields of /proc/PID/stat from the third on, the state, which has index 0."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it is gone
        return None


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _activity(pid: int, state: str) -> str:
    """Return the activity of the process's first thread."""
    if state in "RD":
        return AT_WORK
    try:
        where = Path(f"/proc/{pid}/wchan").read_text()
    except OSError:
        return SLEEPS
    if where in ("", "0"):
        return SLEEPS
    return RESTS if "nanosleep" in where else WAITS


def _busy_seconds() -> float:
    """Return the busy seconds of all processes on the cores this process may use, from /proc/stat."""
    cores, busy = {f"cpu{number}" for number in os.sched_getaffinity(0)}, 0
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name in cores:
            user, nice, system, _idle, _waiting, *others = map(int, ticks)
            busy += user + nice + system + sum(others[:3])  # guests are in user
    return busy * _TICK_SECONDS


def _has_gpu(pid: int) -> bool:
    found = False
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                found = found or bool(_GPU_FILE.search(os.readlink(f"/proc/{pid}/fd/{name}")))
    return found


class _Kernels:
    """Thread that sums up the time in which kernels ran, by NVML, per GPU."""

    def __init__(self) -> None:
        self.seconds: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> _Kernels:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join(5)

    def _follow(self) -> None:
        try:
            import pynvml

            pynvml.nvmlInit()
            gpus = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            before = time.monotonic()
            while not self._over.wait(EVERY_SECONDS):
                busy = sum(pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu for gpu in gpus) / 100
                now = time.monotonic()
                self.seconds = (self.seconds or 0.0) + busy * (now - before)
                before = now
        except Exception as error:  # no GPU, no NVML, or one that does not say: the account does without
            print(f"kernels are not seen by NVML: {error}", flush=True)
