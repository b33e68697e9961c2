"""One process of a pool: what runs in it, what it says, and the handle its parent holds.

It leads its own process group, which is killed whole, so that a compiler it started ends with it; and it watches a
lifeline to its parent, so that it does not outlive a parent that was killed.
"""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Generic, Protocol, TypeVar, runtime_checkable

__all__ = [
    "CannotStart",
    "Context",
    "Ended",
    "Finished",
    "Last",
    "LooksAhead",
    "Message",
    "Ready",
    "ServedProcess",
    "Started",
    "start_context",
]

R = TypeVar("R")

Context = ForkServerContext | SpawnContext
"""How a process starts."""

_FIRST_IMPORT = "gemmtune.engine.processes.preload_without_gc"
"""Of the server that processes are forked from."""

_END_SECONDS = 10.0
"""How long the end of a killed process is waited for: one that is stuck in a driver ends when the driver lets go."""


@dataclass(frozen=True, slots=True)
class Last(Generic[R]):
    """Wraps a result whose process must not run another job: it ends, and a fresh one takes its place."""

    result: R
    """The result."""


@runtime_checkable
class LooksAhead(Protocol):
    """A handler that uses the time in which it waits to prepare its next job."""

    def look_ahead(self, upcoming: Callable[[], object | None]) -> None:
        """Called once; `upcoming()` is the next job where it has arrived, the same object that the call will bring."""


@dataclass(frozen=True, slots=True)
class Ready:
    """The handler is made: the process takes jobs."""


@dataclass(frozen=True, slots=True)
class CannotStart:
    """The imports or the handler failed; the process ends."""

    reason: str
    """The error, for a person."""


@dataclass(frozen=True, slots=True)
class Started:
    """A job has arrived whole, and runs from now on."""

    at: float
    """When, on the monotonic clock, which the processes of one machine share."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A job is done."""

    result: object
    """What the handler returned."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The process is gone, and all it said was heard."""

    how: str
    """Its exit status or the signal that killed it."""


Message = Ready | CannotStart | Started | Finished | Ended
"""What a parent hears of its process."""


def start_context(preload: Sequence[str], environment: Mapping[str, str]) -> Context:
    """How processes start: forked from a server that imported `preload`, or from nothing when there is none.

    There is one such server: the first `preload` names its imports.
    """
    if not preload:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_FIRST_IMPORT, *preload])
    # The server's imports see its environment, so it must already be the processes' own: torch looks for a GPU while
    # it is imported, and a process forked after that look may not use CUDA.
    with _variables(environment):
        forkserver.ensure_running()
    return context


class ServedProcess:
    """A process that imports, then waits to be told to make its handler, and then runs jobs one at a time."""

    def __init__(
        self,
        context: Context,
        imports: Sequence[str],
        make_handler: Callable[[], Callable[..., object]],
        environment: Mapping[str, str],
    ) -> None:
        """Start it.

        Args:
            context: how.
            imports: modules it imports at once.
            make_handler: picklable; called in it after `begin`.
            environment: variables set in it before anything else.
        """
        self.connection, theirs = context.Pipe()
        lifeline_theirs, self._lifeline = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_serve,
            args=(theirs, lifeline_theirs, tuple(imports), make_handler, dict(environment)),
            daemon=True,
        )
        with _hidden_main():
            self._process.start()
        theirs.close()
        lifeline_theirs.close()

    def begin(self) -> None:
        """Tell it to make its handler; it answers `Ready` or `CannotStart`."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone: `receive` tells
            self.connection.send(None)

    def receive(self) -> Message | None:
        """What it said next; None when there is nothing new."""
        try:
            message: Message | None = self.connection.recv() if self.connection.poll() else None
        except (EOFError, OSError):  # OSError: it ended in the middle of a message
            self._process.join(5)
            return Ended(_how(self._process.exitcode))
        return message

    def end(self) -> None:
        """Kill it and everything it started."""
        pid = self._process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # it leads its own group once it runs
            self._process.kill()
        self._process.join(_END_SECONDS)
        self.connection.close()
        self._lifeline.close()


@contextlib.contextmanager
def _variables(variables: Mapping[str, str]) -> Iterator[None]:
    """This process's environment with `variables` set."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """A process imports its parent's main module again, for what is pickled from there: here nothing ever is.

    The console script's is all of the command line, half a second in each process; Ray's is all of ray.
    """
    main = vars(sys.modules["__main__"])
    names: dict[str, object] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(names))
    try:
        yield
    finally:
        main.update(names)


def _how(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit status {exitcode}"


def _serve(
    connection: Connection,
    lifeline: Connection,
    imports: Sequence[str],
    make_handler: Callable[[], Callable[..., object]],
    environment: Mapping[str, str],
) -> None:
    """The process: import, wait for the word, make the handler; then job in, result out, until the parent is gone."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.update(environment)
    gc.disable()  # what is imported stays
    try:
        for name in imports:
            import_module(name)
        connection.recv()  # until `begin`; a process that stands by waits here
        handler = make_handler()
        gc.freeze()  # of what is there by now nothing is gone through again, nor copied where it is shared by a fork
        gc.enable()
    except Exception as error:  # whatever it is, the parent must hear it
        with contextlib.suppress(BrokenPipeError):  # unless it is the parent that is gone
            connection.send(CannotStart(f"{type(error).__name__}: {error}"))
        return
    inbox = _Inbox(connection)
    if isinstance(handler, LooksAhead):
        handler.look_ahead(inbox.peek)
    connection.send(Ready())
    while True:
        try:
            job = inbox.take()
        except EOFError:
            return
        connection.send(Started(time.monotonic()))
        result = handler(job)
        connection.send(Finished(result))
        if isinstance(result, Last):
            return


class _Inbox:
    """The jobs that have arrived, the next one to be seen before it is taken."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._next: list[object] = []

    def peek(self) -> object | None:
        """The next job, where it is here already; None otherwise."""
        if not self._next and self._connection.poll():
            try:
                self._next.append(self._connection.recv())
            except EOFError:  # the parent is gone: `take` tells
                return None
        return self._next[0] if self._next else None

    def take(self) -> object:
        """The next job, which is waited for.

        Raises:
            EOFError: the parent is gone.
        """
        return self._next.pop() if self._next else self._connection.recv()


def _end_with_parent(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()
    os.killpg(os.getpgrp(), signal.SIGKILL)
