"""A pool of killable processes: one job each at a time, with a deadline on its run time.

A process that passes its deadline, or dies, costs its own job and one restart; the job's outcome says so. Each
process leads its own process group, which is killed whole, so that a compiler it started ends with it; and each
watches a lifeline to its parent, so that none outlives a parent that was killed.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from multiprocessing import forkserver
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from typing import Generic, Protocol, TypeVar

from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Last", "Loss", "Outcome", "ProcessPool", "wait_for_any"]

J = TypeVar("J")
R = TypeVar("R")


class Loss(StrEnum):
    """Why a job has no result."""

    TIMED_OUT = "timed_out"
    """It passed its deadline and its process was killed."""
    DIED = "died"
    """Its process ended by itself."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[J, R]):
    """A finished job."""

    job: J
    """The job as it was submitted."""
    result: R | None
    """What the handler returned; None when the job was lost."""
    loss: Loss | None = None
    """Why there is no result."""
    reason: str = ""
    """The loss, for a person."""


@dataclass(frozen=True, slots=True)
class Last(Generic[R]):
    """Wraps a result whose process must not run another job: it ends, and a fresh one takes its place."""

    result: R
    """The result."""


@dataclass(frozen=True, slots=True)
class _Ready:
    pass


@dataclass(frozen=True, slots=True)
class _CannotStart:
    reason: str


class ProcessPool(Generic[J, R]):
    """`size` processes that each make a handler once (`make_handler()`) and then run it on jobs in submission order."""

    def __init__(
        self,
        make_handler: Callable[[], Callable[[J], R | Last[R]]],
        size: int,
        deadline_seconds: float,
        preload: Sequence[str] = (),
        environment: dict[str, str] | None = None,
        start_seconds: float = 300.0,
    ) -> None:
        """Start the processes.

        Args:
            make_handler: picklable; called in each process before its first job.
            size: number of processes, at least 1.
            deadline_seconds: run time a job may take before its process is killed; queue time does not count.
            preload: modules to import once in a server that the processes are forked from; without any, each process
                starts from nothing, as one that uses CUDA must. There is one such server: the first pool with a
                preload names it.
            environment: variables set in each process before `make_handler` runs.
            start_seconds: time a process may take to get ready.
        """
        self._context: ForkServerContext | SpawnContext
        if preload:
            self._context = multiprocessing.get_context("forkserver")
            self._context.set_forkserver_preload(list(preload))
            # The server's imports see its environment, so it must already be the processes' own: torch looks for a
            # GPU while it is imported, and a process forked after that look may not use CUDA.
            with _variables(environment or {}):
                forkserver.ensure_running()
        else:
            self._context = multiprocessing.get_context("spawn")
        self._make_handler = make_handler
        self._environment = environment or {}
        self._deadline_seconds = deadline_seconds
        self._start_seconds = start_seconds
        self._queue: deque[J] = deque()
        self._slots: list[_Slot[J]] = [self._start() for _ in range(size)]

    @property
    def pending(self) -> int:
        """Jobs submitted and not yet finished."""
        return len(self._queue) + sum(slot.job is not None for slot in self._slots)

    @property
    def size(self) -> int:
        """Number of processes."""
        return len(self._slots)

    def submit(self, job: J) -> None:
        """Queue a job; it starts as soon as a process is free."""
        self._queue.append(job)
        self._dispatch()

    def connections(self) -> list[Connection]:
        """What becomes readable when there is something to `collect`."""
        return [slot.connection for slot in self._slots]

    def next_deadline(self) -> float:
        """When, on the monotonic clock, the next process passes its deadline."""
        return min(slot.deadline for slot in self._slots)

    def collect(self) -> list[Outcome[J, R]]:
        """The jobs that finished or were lost since the last call; never waits.

        Raises:
            GemmtuneError: a process cannot start.
        """
        outcomes: list[Outcome[J, R]] = []
        for index, slot in enumerate(self._slots):
            outcome, restart = self._look(slot)
            if outcome is not None:
                outcomes.append(outcome)
            if restart:
                slot.end()
                self._slots[index] = self._start()
        self._dispatch()
        return outcomes

    def close(self) -> None:
        """Kill every process; unfinished jobs are dropped."""
        self._queue.clear()
        for slot in self._slots:
            slot.end()

    def _start(self) -> _Slot[J]:
        ours, theirs = self._context.Pipe()
        lifeline_theirs, lifeline_ours = self._context.Pipe(duplex=False)
        process = self._context.Process(
            target=_serve, args=(theirs, lifeline_theirs, self._make_handler, self._environment), daemon=True
        )
        process.start()
        theirs.close()
        lifeline_theirs.close()
        return _Slot(process, ours, lifeline_ours, time.monotonic() + self._start_seconds)

    def _dispatch(self) -> None:
        for slot in self._slots:
            if self._queue and slot.ready and slot.job is None:
                try:
                    slot.connection.send(self._queue[0])
                except (BrokenPipeError, ConnectionResetError):
                    continue  # it died while it waited, which is no job's fault: the next `collect` replaces it
                slot.job = self._queue.popleft()
                slot.deadline = time.monotonic() + self._deadline_seconds

    def _look(self, slot: _Slot[J]) -> tuple[Outcome[J, R] | None, bool]:
        """What became of one process: (its job's outcome or None, whether it must be replaced)."""
        try:
            message = slot.connection.recv() if slot.connection.poll() else None
        except (EOFError, ConnectionResetError):
            slot.process.join(5)
            if not slot.ready:
                raise GemmtuneError(
                    f"a worker process ended while starting ({_ended(slot.process.exitcode)})"
                ) from None
            return self._lost(slot, Loss.DIED, f"its process ended ({_ended(slot.process.exitcode)})"), True
        if message is None:
            if time.monotonic() <= slot.deadline:
                return None, False
            if not slot.ready:
                raise GemmtuneError(f"a worker process was not ready after {self._start_seconds:g} s")
            return self._lost(slot, Loss.TIMED_OUT, f"still running after {self._deadline_seconds:g} s"), True
        if isinstance(message, _CannotStart):
            raise GemmtuneError(message.reason)
        if isinstance(message, _Ready):
            slot.ready = True
            slot.deadline = float("inf")
            return None, False
        job = slot.job
        slot.job = None
        slot.deadline = float("inf")
        if isinstance(message, Last):
            return Outcome(job, message.result), True  # type: ignore[arg-type]
        return Outcome(job, message), False  # type: ignore[arg-type]

    def _lost(self, slot: _Slot[J], loss: Loss, reason: str) -> Outcome[J, R] | None:
        return None if slot.job is None else Outcome(slot.job, None, loss, reason)


class _Slot(Generic[J]):
    """One process and the job it runs."""

    def __init__(
        self,
        process: multiprocessing.process.BaseProcess,
        connection: Connection,
        lifeline: Connection,
        deadline: float,
    ) -> None:
        self.process = process
        self.connection = connection
        self.lifeline = lifeline
        self.deadline = deadline
        self.ready = False
        self.job: J | None = None

    def end(self) -> None:
        """Kill the process and everything it started."""
        pid = self.process.pid
        if pid is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)  # it leads its own group once it runs
            self.process.kill()
        self.process.join()
        self.connection.close()
        self.lifeline.close()


class Waitable(Protocol):
    """What `wait_for_any` needs of a pool, whatever its jobs are."""

    def connections(self) -> list[Connection]:
        """What becomes readable when there is something to collect."""

    def next_deadline(self) -> float:
        """When, on the monotonic clock, the next deadline passes."""


def wait_for_any(pools: Sequence[Waitable], timeout_seconds: float) -> None:
    """Wait until one of the pools has something to collect, a deadline passes, or the timeout ends."""
    until = min([time.monotonic() + timeout_seconds, *(pool.next_deadline() for pool in pools)])
    connections = [connection for pool in pools for connection in pool.connections()]
    wait(connections, max(until - time.monotonic(), 0))


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


def _ended(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"signal {signal.Signals(-exitcode).name}"
    return f"exit status {exitcode}"


def _serve(
    connection: Connection,
    lifeline: Connection,
    make_handler: Callable[[], Callable[[J], R | Last[R]]],
    environment: dict[str, str],
) -> None:
    """The process: make the handler, then job in, result out, until the parent is gone."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    os.environ.update(environment)
    try:
        handler = make_handler()
    except Exception as error:  # whatever it is, the parent must hear it
        connection.send(_CannotStart(f"{type(error).__name__}: {error}"))
        return
    connection.send(_Ready())
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        result = handler(job)
        connection.send(result)
        if isinstance(result, Last):
            return


def _end_with_parent(lifeline: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        lifeline.recv()
    os.killpg(os.getpgrp(), signal.SIGKILL)
