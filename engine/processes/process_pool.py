"""A pool of killable processes: one job each at a time, with a deadline on its run time.

A process that passes its deadline, or dies, costs its own job and one restart; the job's outcome says so. An outcome
that ended its process is told only when the next process in that place is ready: when none can start, the machine
was at fault and not the job, so the job is queued again and the place is given up with an error.
"""

from __future__ import annotations

import logging
import math
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from multiprocessing.connection import Connection
from typing import Generic, Protocol, TypeVar, cast

from gemmtune.engine.processes.child_process import (
    CannotStart,
    Ended,
    Finished,
    Last,
    Message,
    Ready,
    ServedProcess,
    Started,
    start_context,
)
from gemmtune.engine.processes.slot import Loss, Outcome, Phase, Slot, Ticket
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Last", "Loss", "Notify", "Outcome", "ProcessPool", "Quarantined", "log_notice", "wait_for_any"]

J = TypeVar("J")
R = TypeVar("R")

Notify = Callable[[str], None]
"""Receives one line that a person should read."""

log_notice: Notify = logging.getLogger("gemmtune").warning
"""Writes a notice to the log, which prints it to standard error where nothing else is set up."""

_PAUSES_SECONDS = (0.5, 1.0)
"""Between one failed start of a successor and the next; a place whose last start fails too is given up."""

_MOST_NOT_TAKEN = 3
"""Processes that may end before they acknowledge one job, until the job is held to be what ends them."""

_MOST_SPARES_LOST = 3
"""Spare processes that may end in a row while they stand by, until the pool goes on without one."""


class Quarantined(GemmtuneError):  # noqa: N818 -- the name says what is wrong
    """No process starts any more in a place that had worked: what it runs on is lost, a GPU for example."""


class ProcessPool(Generic[J, R]):
    """`size` processes that each make a handler once (`make_handler()`) and then run it on jobs in submission order."""

    def __init__(
        self,
        make_handler: Callable[[], Callable[[J], R | Last[R]]],
        size: int,
        deadline_seconds: float,
        preload: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        start_seconds: float = 300.0,
        *,
        name: str = "this machine",
        attempts: int = 1,
        describe: Callable[[J], str] = str,
        spare_imports: Sequence[str] | None = None,
        sends_ahead: bool = False,
        notify: Notify = log_notice,
    ) -> None:
        """Start the processes.

        Args:
            make_handler: picklable; called in each process before its first job.
            size: number of processes, at least 1.
            deadline_seconds: run time a job may take before its process is killed; the time it spends in the queue
                and on its way does not count.
            preload: modules to import once in a server that the processes are forked from; without any, each process
                starts from nothing, as one that uses CUDA must. There is one such server: the first pool with a
                preload names it.
            environment: variables set in each process before `make_handler` runs.
            start_seconds: time a process may take to get ready, and to acknowledge a job.
            name: what the processes run on, for messages, e.g. "GPU 0".
            attempts: processes that may die while they run one job, at least 1; the last death loses the job.
            describe: a job, for messages.
            spare_imports: modules each process imports before `make_handler` runs. When given, and be it empty, one
                more process stands by with them imported, but without a handler: it takes the place of the next one
                that ends. It is started only when all others are ready, so that it delays none.
            sends_ahead: whether a busy process already has its next job at hand, so that it need not wait between two,
                and can prepare it (`LooksAhead`). Jobs must fit a pipe (64 KiB).
            notify: receives a line for each run that is repeated and each start that failed.
        """
        environment = environment or {}
        context = start_context(preload, environment)
        self._new_process = partial(ServedProcess, context, spare_imports or (), make_handler, environment)
        self._deadline_seconds = deadline_seconds
        self._start_seconds = start_seconds
        self._name = name
        self._attempts = attempts
        self._describe = describe
        self._sends_ahead = sends_ahead
        self._keeps_spare = spare_imports is not None
        self._spare: ServedProcess | None = None
        self._spares_lost = 0
        self._queue: deque[Ticket[J]] = deque()
        self._notify = notify
        self._errors: list[GemmtuneError] = []
        self._slots: list[Slot[J, R]] = [Slot() for _ in range(size)]
        for slot in self._slots:
            self._fill(slot)

    @property
    def pending(self) -> int:
        """Jobs submitted and not yet collected or lost; those whose outcome waits for the next process count."""
        held = [job for slot in self._slots for job in (slot.ticket, slot.following, slot.withheld)]
        return len(self._queue) + sum(job is not None for job in held)

    @property
    def size(self) -> int:
        """Number of processes that take jobs."""
        return len(self._slots)

    def submit(self, job: J) -> None:
        """Queue a job; it starts as soon as a process is free."""
        self._queue.append(Ticket(job))
        self._dispatch()

    def connections(self) -> list[Connection]:
        """What becomes readable when there is something to `collect`."""
        processes = [self._spare, *(slot.process for slot in self._slots)]
        return [process.connection for process in processes if process is not None]

    def next_deadline(self) -> float:
        """When, on the monotonic clock, there is something to do for `collect` even if no process says a word."""
        now = [time.monotonic()] if self._errors else []
        return min([*now, *(slot.deadline for slot in self._slots)], default=float("inf"))

    def collect(self) -> list[Outcome[J, R]]:
        """The jobs that finished or were lost since the last call; never waits.

        Raises:
            GemmtuneError: a process cannot start. Only a call that has no outcome to return raises; when no process
                is left, every such call does.
            Quarantined: the same of a place in which one had been ready before.
        """
        speaking = readable([slot.process.connection for slot in self._slots if slot.process is not None], 0)
        now = time.monotonic()
        found = [self._look(slot) for slot in tuple(self._slots) if now >= slot.deadline or slot.speaks(speaking)]
        outcomes = [outcome for outcome in found if outcome is not None]
        self._dispatch()
        self._keep_spare()
        if self._errors and not outcomes:
            raise self._errors.pop(0) if self._slots else self._errors[0]
        return outcomes

    def close(self) -> None:
        """Kill every process; unfinished jobs are dropped."""
        self._queue.clear()
        for process in (self._spare, *(slot.process for slot in self._slots)):
            if process is not None:
                process.end()
        self._slots.clear()
        self._spare = None

    def _dispatch(self) -> None:
        for slot in self._slots:
            if slot.phase is Phase.IDLE and self._send(slot):
                slot.ticket = self._queue.popleft()
                slot.enter(Phase.SENT, time.monotonic() + self._start_seconds)
        if self._sends_ahead:
            for slot in self._slots:
                # Nothing goes behind a job that runs again: what killed the process may have been the job behind it.
                alone = slot.ticket is None or slot.ticket.deaths > 0
                if not alone and slot.following is None and self._send(slot):
                    slot.following = self._queue.popleft()

    def _send(self, slot: Slot[J, R]) -> bool:
        """Send the first job of the queue; whether there was one, and a process to take it."""
        if not self._queue or slot.process is None:
            return False
        try:
            slot.process.connection.send(self._queue[0].job)
        except (BrokenPipeError, ConnectionResetError):
            return False  # it died while it waited, which is no job's fault: the next `collect` replaces it
        return True

    def _look(self, slot: Slot[J, R]) -> Outcome[J, R] | None:
        """Hear one process out, and replace it when it is done for."""
        process = slot.process
        if process is None:
            if time.monotonic() >= slot.deadline:
                self._fill(slot)
            return None
        while slot.process is process:
            message = process.receive()
            if message is None:
                if time.monotonic() > slot.deadline:
                    self._overdue(slot)
                return None
            outcome = self._hear(slot, message)
            if outcome is not None:
                return outcome
        return None

    def _hear(self, slot: Slot[J, R], message: Message) -> Outcome[J, R] | None:
        match message:
            case Ready():
                self._spares_lost = 0
                return slot.proven()
            case CannotStart(reason):
                self._not_started(slot, reason)
            case Started(at):
                slot.enter(Phase.RUNNING, at + self._deadline_seconds)
            case Finished(Last(result)):
                self._replace(slot, Outcome(slot.taken().job, cast("R", result)))
            case Finished(result):
                outcome = Outcome(slot.taken().job, cast("R", result))
                if slot.ticket is None:
                    slot.enter(Phase.IDLE)
                else:
                    slot.enter(Phase.SENT, time.monotonic() + self._start_seconds)
                return outcome
            case Ended(how):
                self._ended(slot, how)
        return None

    def _ended(self, slot: Slot[J, R], how: str) -> None:
        """A process ended by itself, or was killed from outside."""
        match slot.phase:
            case Phase.STARTING:
                self._not_started(slot, f"a worker process ended while starting ({how})")
            case Phase.SENT:
                self._not_taken(slot, f"ended ({how})")
            case Phase.RUNNING:
                ticket = slot.taken()
                self._recall(slot)
                ticket.deaths += 1
                if ticket.deaths < self._attempts:
                    job = self._describe(ticket.job)
                    self._again(ticket, f"a worker process ended ({how}) while it ran {job}; running it again")
                    self._replace(slot)
                else:
                    self._replace(slot, Outcome(ticket.job, None, Loss.DIED, f"its process ended ({how})"))
            case _:
                self._replace(slot)  # it died while it waited, which costs no job

    def _overdue(self, slot: Slot[J, R]) -> None:
        """A process passed its deadline."""
        match slot.phase:
            case Phase.STARTING:
                self._not_started(slot, f"a worker process was not ready after {self._start_seconds:g} s")
            case Phase.SENT:
                self._not_taken(slot, f"did not answer for {self._start_seconds:g} s")
            case _:
                reason = f"still running after {self._deadline_seconds:g} s"
                self._replace(slot, Outcome(slot.taken().job, None, Loss.TIMED_OUT, reason))

    def _not_taken(self, slot: Slot[J, R], what: str) -> None:
        """The process is done for, and its job never ran."""
        ticket = slot.taken()
        self._recall(slot)
        ticket.not_taken += 1
        if ticket.not_taken < _MOST_NOT_TAKEN:
            job = self._describe(ticket.job)
            self._again(ticket, f"a worker process {what} before it took {job}; giving it to the next one")
            self._replace(slot)
        else:
            reason = f"its process {what} before it took the job, {ticket.not_taken} times"
            self._replace(slot, Outcome(ticket.job, None, Loss.DIED, reason))

    def _recall(self, slot: Slot[J, R]) -> None:
        """Queue a job again that was sent ahead, behind the one that goes first."""
        if slot.ticket is not None:
            self._queue.appendleft(slot.taken())

    def _again(self, ticket: Ticket[J], notice: str) -> None:
        self._queue.appendleft(ticket)
        self._notify(notice)

    def _not_started(self, slot: Slot[J, R], reason: str) -> None:
        """Try again after a pause, or give the place up."""
        slot.vacate()
        if not slot.was_ready:
            self._give_up(slot, GemmtuneError(reason))
        elif slot.failed_starts < len(_PAUSES_SECONDS):
            slot.enter(Phase.VACANT, time.monotonic() + _PAUSES_SECONDS[slot.failed_starts])
            slot.failed_starts += 1
            self._notify(f"{self._name}: no new worker process ({reason}); trying again")
        else:
            starts = slot.failed_starts + 1
            message = (
                f"{self._name} is quarantined: {starts} worker processes in a row could not start (last: {reason})"
            )
            way_out = f"what was measured is kept; give the command again once {self._name} is back"
            self._give_up(slot, Quarantined(f"{message}; {way_out}"))

    def _give_up(self, slot: Slot[J, R], error: GemmtuneError) -> None:
        self._slots.remove(slot)
        if slot.withheld is not None:
            self._queue.appendleft(Ticket(slot.withheld.job))
        self._errors.append(error)

    def _replace(self, slot: Slot[J, R], withheld: Outcome[J, R] | None = None) -> None:
        """End a process and start the next, whose readiness tells the outcome; a job sent ahead is queued again."""
        self._recall(slot)
        slot.vacate()
        slot.withheld = withheld
        self._fill(slot)

    def _fill(self, slot: Slot[J, R]) -> None:
        self._drop_dead_spare()
        slot.process, self._spare = self._spare or self._new_process(), None
        slot.process.begin()
        slot.enter(Phase.STARTING, time.monotonic() + self._start_seconds)

    def _keep_spare(self) -> None:
        self._drop_dead_spare()
        if not self._keeps_spare or not self._slots:
            return
        all_ready = all(slot.phase not in {Phase.VACANT, Phase.STARTING} for slot in self._slots)
        if self._spare is None and all_ready and self._spares_lost < _MOST_SPARES_LOST:
            self._spare = self._new_process()

    def _drop_dead_spare(self) -> None:
        if self._spare is not None and self._spare.receive() is not None:  # its first word comes after `begin`
            self._spare.end()
            self._spare = None
            self._spares_lost += 1
            if self._spares_lost == _MOST_SPARES_LOST:
                self._notify(f"{self._name}: {_MOST_SPARES_LOST} spare processes in a row ended; going on without one")


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
    readable(connections, max(until - time.monotonic(), 0))


def readable(connections: Iterable[Connection], timeout_seconds: float) -> set[int]:
    """File numbers of those that have something to say, as soon as one has, or when the timeout ends.

    What `multiprocessing.connection.wait` does, at a tenth of its cost: 60 processes are looked at for every result.
    """
    poll = select.poll()
    for connection in connections:
        poll.register(connection, select.POLLIN)
    return {number for number, _ in poll.poll(math.ceil(1e3 * timeout_seconds))}
