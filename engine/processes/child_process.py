"""One child process of a pool: the loop that runs in it, and the handle that its parent holds."""

import contextlib
import gc
import multiprocessing
import os
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, auto
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Generic, TypeVar

from gemmtune.engine.io.blame import account
from gemmtune.engine.processes.scratch import process_folder

R = TypeVar("R")

Context = ForkServerContext | SpawnContext
"""Start method of a process."""

NO_GPU: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
"""Environment of a builder: a build depends on no GPU that happens to be there, and every core has its own builder."""

_PRELOADER = "gemmtune.engine.processes.preload_without_gc"
"""Module that the fork server imports, and that imports the others."""
_PRELOADED = "GEMMTUNE_PRELOAD"
"""Variable of the server's environment with the names of the others, each after a comma."""

_WAY_OUT = "install what it lacks, or leave out the spaces that need it"  # of an import that fails

_END_SECONDS = 10.0
"""Longest wait for a killed process: one that hangs in a driver ends only when the driver returns."""


class Last(Generic[R]):
    """Wraps the last result of a process: the process ends, and a fresh one replaces it."""

    def __init__(self, result: R) -> None:
        """Wrap `result`, which the pool hands on as any other."""
        self.result = result


class Event(Enum):
    """Kinds of message that a process sends to its parent."""

    IMPORTING = auto()
    """The process imports a module next; the value is its name, empty after the last one. `receive` keeps it."""
    READY = auto()
    """The handler exists and the process takes jobs."""
    CANNOT_START = auto()
    """The imports or the handler failed; the value is the error as text."""
    STARTED = auto()
    """A job arrived and runs; the value is the time on the machine's monotonic clock, s."""
    FINISHED = auto()
    """A job is done; the value is what the handler returned."""
    ENDED = auto()
    """The process ended and every earlier message was read; the value is its exit status or signal."""


Message = tuple[Event, object]
"""Event and its value."""


def start_context(preload: Sequence[str], environment: Mapping[str, str]) -> Context:
    """Return the start method: fork from a server that imports `preload`, or spawn if there is nothing to preload.

    A process has one fork server: the first call with a preload chooses its imports and its environment.
    """
    if not preload:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADER])
    environment = {**environment, _PRELOADED: "".join(f",{name}" for name in preload)}
    # The server must import in the environment of its children: torch looks for a GPU while it is imported, and a
    # process that is forked after that look may not use CUDA.
    before = dict(os.environ)
    os.environ.update(environment)
    tempfile.tempdir, usual = process_folder(), tempfile.tempdir  # of the server's socket
    try:
        forkserver.ensure_running()
    finally:
        tempfile.tempdir = usual
        for name in environment.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
    return context


class ChildProcess:
    """A process that imports modules, waits for `begin` to make its handler, and then runs one job at a time.

    It leads its own process group, so that a compiler it started is killed with it. It watches a pipe to its parent,
    so that it ends when the parent is killed.
    """

    def __init__(
        self,
        context: Context,
        imports: Sequence[str],
        make_handler: Callable[[], Callable[..., object]],
        environment: Mapping[str, str],
    ) -> None:
        """Start the process; it sets the environment, then imports, and calls `make_handler`, which is picklable."""
        self.connection, theirs = context.Pipe()
        self._arrivals = select.poll()  # the connection's own poll makes a selector each time
        self._arrivals.register(self.connection, select.POLLIN)
        lifeline_theirs, self._lifeline = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve, args=(theirs, lifeline_theirs, tuple(imports), make_handler, dict(environment)), daemon=True
        )
        self._importing = ""
        with _hidden_main():
            self._start()
        theirs.close()
        lifeline_theirs.close()

    def _start(self) -> None:
        """Start the process; a fork server that ends over an import is replaced by one that imports nothing."""
        for pause_seconds in (0.05, 1.0):  # until the end of the server is noticed
            try:
                return self._process.start()
            except (EOFError, ConnectionError):
                time.sleep(pause_seconds)
        return self._process.start()

    def begin(self) -> None:
        """Ask the process to make its handler; it answers READY or CANNOT_START."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an ended process: `receive` reports it
            self.connection.send(None)

    def receive(self) -> Message | None:
        """Return the next message, or None if there is none."""
        try:
            message: Message | None = self.connection.recv() if self._arrivals.poll(0) else None
            while message is not None and message[0] is Event.IMPORTING:
                self._importing = str(message[1])
                message = self.connection.recv() if self._arrivals.poll(0) else None
        except (EOFError, OSError):  # OSError: the process ended in the middle of a message
            self._process.join(5)
            code = self._process.exitcode or 0
            end = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
            return Event.ENDED, end + (f" over the import of {self._importing}; {_WAY_OUT}" if self._importing else "")
        return message

    def end(self) -> None:
        """Kill the process and everything it started."""
        pid = self._process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # the process leads its group once it runs
            self._process.kill()
        self._process.join(_END_SECONDS)
        self.connection.close()
        self._lifeline.close()


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Hide the main module's file, so that the child does not import the program: nothing is pickled from there."""
    main = vars(sys.modules["__main__"])
    names: dict[str, object] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(names))
    try:
        yield
    finally:
        main.update(names)


def _serve(
    connection: Connection,
    lifeline: Connection,
    imports: Sequence[str],
    make_handler: Callable[[], Callable[..., object]],
    environment: Mapping[str, str],
) -> None:
    """Import, wait for `begin`, make the handler, and run jobs until the parent is gone."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.update(environment)
    gc.disable()  # imported modules stay: collecting among them takes time and finds nothing
    importing = ""
    try:
        for name in (*imports, "") if imports else ():
            importing = name
            connection.send((Event.IMPORTING, name))
            if name:
                import_module(name)
        connection.recv()  # `begin`: a spare process waits here
        handler = make_handler()
        gc.freeze()  # later collections skip the imports, whose pages a fork shares
        gc.enable()
    except BaseException as error:  # the parent must learn of any error
        failed = f"{type(error).__name__}: {error}"
        if importing:
            failed = f"cannot import {importing}: {account(error, None)}; {_WAY_OUT}"
        with contextlib.suppress(BrokenPipeError):
            connection.send((Event.CANNOT_START, failed))
        return
    arrived: list[object] = []

    def upcoming() -> object | None:
        if not arrived and connection.poll():
            with contextlib.suppress(EOFError):  # the parent is gone: the next `recv` raises again
                arrived.append(connection.recv())
        return arrived[0] if arrived else None

    if look_ahead := getattr(handler, "look_ahead", None):
        look_ahead(upcoming)
    connection.send((Event.READY, None))
    while True:
        try:
            job = arrived.pop() if arrived else connection.recv()
        except EOFError:
            return
        with getattr(handler, "lock", contextlib.nullcontext)():
            connection.send((Event.STARTED, time.monotonic()))
            result = handler(job)
        connection.send((Event.FINISHED, result))
        if isinstance(result, Last):
            return


def _end_with_parent(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()
    os.killpg(os.getpgrp(), signal.SIGKILL)
