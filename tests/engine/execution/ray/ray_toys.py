"""Work for the tests' actors, which import this file by name."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from gemmtune.engine.processes.process_pool import ProcessPool
from gemmtune.engine.records.errors import GemmtuneError


def work(job):
    """Do as the job says: `(verb, argument)`."""
    verb, argument = job
    match verb:
        case "echo":
            return argument
        case "pid":
            return os.getpid()
        case "sleep":
            time.sleep(argument)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "kill the actor":
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)
        case "modules":
            return {name for name in argument if name in __import__("sys").modules}
    return verb


def make_work():
    return work


def make_processes(size, deadline_seconds, folder, notify):
    return ProcessPool(make_work, size, deadline_seconds, name="the toys", attempts=2, describe=str, notify=notify)


def processes(size=1, deadline_seconds=30.0):
    return partial(make_processes, size, deadline_seconds)


def cannot_be_made(folder, notify):
    raise GemmtuneError("its GPU is L4, the tasks are of H200")


def raises(folder, notify):
    raise OSError("no room on /scratch")
