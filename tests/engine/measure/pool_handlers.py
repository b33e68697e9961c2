"""What the pool's tests run in its processes; a process imports this file by name."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from gemmtune.engine.measure.process import Last


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

    def touch(self, path):
        Path(path).touch()

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
        Path(path + ".part").write_text(" ".join(str(pid) for pid in (os.getpid(), *(c.pid for c in children))))
        Path(path + ".part").rename(path)
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

    def group_leader(self, _):
        return os.getpgrp() == os.getpid()


def cannot_start():
    raise RuntimeError("no GPU of that name")


def exits_while_starting():
    os._exit(7)


def never_ready():
    time.sleep(300)
