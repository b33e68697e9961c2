"""Handlers that the pool's tests run in its processes, which import this file by name."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gemmtune.engine.processes.process_pool import Last


class Do:
    """Does what a job says: `("verb", argument)`; answers with the argument and the process's id."""

    def __call__(self, job):
        verb, argument = job
        answer = getattr(self, verb)(argument)
        return answer if isinstance(answer, Last) else (answer, os.getpid())

    def echo(self, argument):
        return argument

    def sleep(self, seconds):
        time.sleep(seconds)

    def wait_for(self, path):
        until = time.monotonic() + 30
        while not Path(path).exists() and time.monotonic() < until:
            time.sleep(0.01)

    def say_and_wait(self, folder):
        """Leaves `running` in the folder and waits for `sign`."""
        Path(folder, "running").touch()
        self.wait_for(Path(folder, "sign"))

    def touch(self, path):
        Path(path).touch()

    def write(self, argument):
        path, text = argument
        Path(path).write_text(text)
        return text

    def exit(self, status):
        os._exit(status)

    def kill(self, name):
        os.kill(os.getpid(), getattr(signal, name))

    def fail(self, message):
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 (the traceback is no news to the tests' reader)
        raise RuntimeError(message)

    def start_children_and_hang(self, path):
        """Two processes of its own, whose ids it leaves in `path` beside its own."""
        command = [sys.executable, "-c", "import time; time.sleep(300)"]
        children = [subprocess.Popen(command) for _ in range(2)]
        leave(path, " ".join(str(pid) for pid in (os.getpid(), *(c.pid for c in children))))
        time.sleep(300)

    def start_a_child_and_exit(self, path):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(300)"])
        Path(path).write_text(str(child.pid))
        os._exit(3)

    def last(self, argument):
        return Last((argument, os.getpid()))

    def variable(self, name):
        return os.environ.get(name)

    def is_loaded(self, name):
        return name in sys.modules

    def collects(self, module):
        """Whether garbage is collected, and what the module holds is left out of it."""
        held = vars(sys.modules[module])
        return gc.isenabled(), all(each is not held for each in gc.get_objects())

    def group_leader(self, _):
        return os.getpgrp() == os.getpid()


def leave(path, text):
    """Write a file that is whole once it is there."""
    Path(path + ".part").write_text(text)
    Path(path + ".part").rename(path)


class ExitsOnArrival:
    """Ends the process that unpickles it."""

    def __reduce__(self):
        return os._exit, (9,)


class Traced:
    """Makes the handler, and leaves a line in `path`: the process's id and whether `module` was imported already."""

    def __init__(self, path, module):
        self.path, self.module = path, module

    def __call__(self):
        with Path(self.path).open("a", encoding="utf-8") as file:
            file.write(f"{os.getpid()} {self.module in sys.modules}\n")
        return Do()


class FailsAtTimes:
    """Makes the handler, unless the number in `path` is above 0: then it fails and leaves one less."""

    def __init__(self, path):
        self.path = Path(path)

    def __call__(self):
        failures = int(self.path.read_text()) if self.path.exists() else 0
        if failures:
            self.path.write_text(str(failures - 1))
            raise RuntimeError("CUDA error: no device")
        return Do()


class Patient(Do):
    """Runs a job once a file is there."""

    @contextlib.contextmanager
    def lock(self):
        self.wait_for(os.environ["SIGN"])
        yield


class Seer(Do):
    """Knows what comes next."""

    def look_ahead(self, upcoming):
        self.upcoming = upcoming

    def see(self, sign):
        """Wait until the sign is there, and tell the job that follows."""
        self.wait_for(sign)
        return self.upcoming()

    def look_and_echo(self, argument):
        """Prepare the next job, which is fatal if it is a deadly one."""
        time.sleep(0.2)
        upcoming = self.upcoming()
        if upcoming is not None and upcoming[0] == "exit":
            os._exit(upcoming[1])
        return argument


def cannot_start():
    raise RuntimeError("no GPU of that name")


def exits_while_starting():
    os._exit(7)


def never_ready():
    time.sleep(300)
