"""A pool of killable processes that run one job each, with a deadline on the run time.

A process that passes its deadline or dies costs its own job and one restart. The pool reports an outcome that ended a
process only when the next process is ready. If none can start, the machine is at fault and not the job: the pool queues
the job again, gives up the slot and raises an error.
"""

import logging
import math
import select
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Generic, TypeVar, cast

from gemmtune.engine.processes.child_process import ChildProcess, Event, Last, Message, start_context
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Last", "Loss", "Notify", "Outcome", "ProcessPool", "Quarantined", "log_notice", "wait_for_any"]

J = TypeVar("J")
R = TypeVar("R")

Notify = Callable[[str], None]
"""Receives one line that a person should read."""

log_notice: Notify = logging.getLogger("gemmtune").warning
"""Logs a notice; Python prints it to standard error unless logging is configured."""

_PAUSES_SECONDS = (0.5, 1.0)
"""Pauses between failed starts of a replacement; the pool gives up the slot when the last start fails too."""

_MOST_NOT_STARTED = 3
"""Processes that may end before they start one job; then the job itself is to blame."""


class Quarantined(GemmtuneError):  # noqa: N818 (the name says what is wrong)
    """Replacement processes no longer start in a slot that had worked, for example because its GPU is lost."""


class Loss(StrEnum):
    """Why a job has no result."""

    TIMED_OUT = "timed_out"
    """The job passed its deadline and the pool killed its process."""
    DIED = "died"
    """The job's process ended by itself, as often as `attempts` allows."""


@dataclass(frozen=True, slots=True)
class Outcome(Generic[J, R]):
    """A job that finished or was lost."""

    job: J
    """The job as it was submitted."""
    result: R | None
    """Return value of the handler; None for a lost job."""
    loss: Loss | None = None
    """Why there is no result."""
    reason: str = ""
    """Description of the loss, for a person."""


@dataclass(slots=True)
class _Ticket(Generic[J]):
    job: J
    ends: int = 0
    """Processes that ended while they had the job."""


class _Phase(Enum):
    """Event that a slot waits for."""

    PAUSED = auto()
    """The time of the next start; there is no process."""
    STARTING = auto()
    """The process, to be ready."""
    IDLE = auto()
    """A job to run."""
    SENT = auto()
    """The process, to acknowledge its job."""
    RUNNING = auto()
    """The result of the job."""


@dataclass(slots=True)
class _Slot(Generic[J, R]):
    """A process and its successors, one after the other."""

    process: ChildProcess | None = None
    phase: _Phase = _Phase.PAUSED
    deadline: float = 0.0
    """End of the phase on the monotonic clock, s."""
    tickets: deque[_Ticket[J]] = field(default_factory=deque)
    """The process's job, and the one that was sent ahead."""
    withheld: Outcome[J, R] | None = None
    """Outcome that is reported when the next process is ready."""
    was_ready: bool = False
    failed_starts: int = 0

    def enter(self, phase: _Phase, deadline: float = math.inf) -> None:
        self.phase, self.deadline = phase, deadline


class ProcessPool(Generic[J, R]):
    """`size` processes; each makes a handler once and runs it on jobs, in the order in which they were submitted."""

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
        """Start the processes; with a preload they start with the first `collect`.

        Args:
            make_handler: picklable; called in each process before its first job. Each starts in its `lock()`, if any.
            size: number of processes, at least 1.
            deadline_seconds: run time after which a job's process is killed; time in the queue does not count.
            preload: modules that a server imports once, from which the processes are forked. Without any, processes
                are spawned, as those that use CUDA must be. The first pool with a preload chooses the server's imports.
            environment: variables that are set in each process before `make_handler` runs.
            start_seconds: time that a process may take to get ready, and to acknowledge a job.
            name: what the processes run on, for messages, for example "GPU 0".
            attempts: processes that may die while they run one job, at least 1; the last death loses the job.
            describe: returns a job's description for messages.
            spare_imports: modules that each process imports before `make_handler` runs. If given, even if empty, one
                spare process imports them too and waits to replace the next process that ends. The pool starts it once
                all others are ready, so that it delays none.
            sends_ahead: whether a busy process holds its next job already. Jobs must fit into a pipe (64 KiB). The
                handler's method `look_ahead`, if it has one, receives a function that returns the next job or None.
            notify: receives a line per repeated run and per failed start.
        """
        environment = environment or {}
        context = start_context(preload, environment)
        imports = (*preload, *(spare_imports or ()))
        self._new_process = partial(ChildProcess, context, imports, make_handler, environment)
        self._deadline_seconds = deadline_seconds
        self._start_seconds = start_seconds
        self._name = name
        self._attempts = attempts
        self._describe = describe
        self._sends_ahead = sends_ahead
        self._notify = notify
        self._keeps_spare = spare_imports is not None
        self._spare: ChildProcess | None = None
        self._queue: deque[_Ticket[J]] = deque()
        self._pending = 0
        self._errors: list[GemmtuneError] = []
        self._slots: list[_Slot[J, R]] = [_Slot() for _ in range(size)]
        self._received: list[Outcome[J, R]] = []  # for the next `collect`
        self._of_number: dict[int, _Slot[J, R]] = {}  # slots by the file numbers of their connections
        self._poll = select.epoll()  # of these connections
        if not preload:  # forking one waits until the server has imported
            for slot in self._slots:
                self._start(slot)

    @property
    def pending(self) -> int:
        """Number of jobs that were submitted and not yet collected."""
        return self._pending

    @property
    def size(self) -> int:
        """Number of processes that take jobs."""
        return len(self._slots)

    def submit(self, job: J) -> None:
        """Queue a job, which starts as soon as a process is free."""
        self._pending += 1
        self._queue.append(_Ticket(job))
        self._send_jobs()

    def run(self, jobs: Iterable[J]) -> Iterator[Outcome[J, R]]:
        """Submit jobs, and yield what `collect` returns until nothing is pending."""
        for job in jobs:
            self.submit(job)
        while self.pending:
            wait_for_any([self], 5.0)
            yield from self.collect()

    def fileno(self) -> int:
        """Return the number of a file that is readable when a process has sent something, or ended."""
        return self._poll.fileno()

    def next_deadline(self) -> float:
        """Return when `collect` has something to do even if no process sends anything, on the monotonic clock, s."""
        now = [time.monotonic()] if self._errors else []
        return min([*now, *(slot.deadline for slot in self._slots)], default=math.inf)

    def collect(self) -> list[Outcome[J, R]]:
        """Return the jobs that finished or were lost since the last call, without waiting.

        Raises:
            GemmtuneError: a process cannot start. A call that has outcomes returns them first; once no process is
                left, every call without outcomes raises.
            Quarantined: a process cannot start in a slot that had worked before.
        """
        self.receive()
        outcomes, self._received = self._received, []
        self._pending -= len(outcomes)
        if self._errors and not outcomes:
            raise self._errors.pop(0) if self._slots else self._errors[0]
        return outcomes

    def receive(self) -> bool:
        """Take the messages that are there and send waiting jobs; return whether `collect` has something to return."""
        ready, now = [self._of_number[number] for number, _ in self._poll.poll(0)], time.monotonic()
        late = [slot for slot in self._slots if now >= slot.deadline]
        for slot in {id(slot): slot for slot in (*ready, *late)}.values():
            if (outcome := self._advance(slot)) is not None:
                self._received.append(outcome)
        self._send_jobs()
        wants_spare = self._keeps_spare and self._spare is None and bool(self._slots)
        if wants_spare and not any(slot.phase in {_Phase.PAUSED, _Phase.STARTING} for slot in self._slots):
            self._spare = self._new_process()
        return bool(self._received or self._errors)

    def close(self) -> None:
        """Kill every process and drop unfinished jobs."""
        self._queue.clear()
        self._errors.clear()
        for slot in self._slots:
            self._end(slot)
        if self._spare is not None:
            self._spare.end()
        self._slots.clear()
        self._received.clear()
        self._spare = None

    def _send_jobs(self) -> None:
        for slot in self._slots if self._queue else ():
            if slot.phase is _Phase.IDLE and self._send(slot):
                slot.enter(_Phase.SENT, time.monotonic() + self._start_seconds)
        for slot in self._slots if self._queue and self._sends_ahead else ():
            # Nothing follows a job that runs again: the process may have died of the job behind it.
            if len(slot.tickets) == 1 and slot.tickets[0].ends == 0:
                self._send(slot)

    def _send(self, slot: _Slot[J, R]) -> bool:
        """Send the first job of the queue; return whether there was one and the process took it."""
        if not self._queue or slot.process is None:
            return False
        try:
            slot.process.connection.send(self._queue[0].job)
        except (BrokenPipeError, ConnectionResetError):
            return False  # the process died idle: the next `collect` replaces it
        slot.tickets.append(self._queue.popleft())
        return True

    def _advance(self, slot: _Slot[J, R]) -> Outcome[J, R] | None:
        """Handle a slot's messages and its deadline; return the outcome of its job, if there is one."""
        process = slot.process
        if process is None:
            self._start(slot)
        while process is not None and slot.process is process:
            message = process.receive()
            if message is None:
                if time.monotonic() > slot.deadline:
                    self._on_deadline(slot)
                break
            outcome = self._on_message(slot, message)
            if outcome is not None:
                return outcome
        return None

    def _on_message(self, slot: _Slot[J, R], message: Message) -> Outcome[J, R] | None:
        match message:
            case Event.READY, _:
                slot.enter(_Phase.IDLE)
                slot.was_ready, slot.failed_starts = True, 0
                withheld, slot.withheld = slot.withheld, None
                return withheld
            case Event.CANNOT_START, reason:
                self._on_failed_start(slot, str(reason))
            case Event.STARTED, float(at):
                slot.enter(_Phase.RUNNING, at + self._deadline_seconds)
            case Event.FINISHED, Last(result=result):
                self._restart(slot, Outcome(slot.tickets.popleft().job, cast("R", result)))
            case Event.FINISHED, result:
                outcome = Outcome(slot.tickets.popleft().job, cast("R", result))
                if slot.tickets:
                    slot.enter(_Phase.SENT, time.monotonic() + self._start_seconds)
                else:
                    slot.enter(_Phase.IDLE)
                return outcome
            case _, how:
                self._on_end(slot, f"ended ({how})")
        return None

    def _on_deadline(self, slot: _Slot[J, R]) -> None:
        if slot.phase is _Phase.RUNNING:
            reason = f"still running after {self._deadline_seconds:g} s"
            self._restart(slot, Outcome(slot.tickets.popleft().job, None, Loss.TIMED_OUT, reason))
        else:
            self._on_end(slot, f"did not answer for {self._start_seconds:g} s")

    def _on_end(self, slot: _Slot[J, R], how: str) -> None:
        """Replace a process that ended or hangs; its job runs again, or is lost."""
        if slot.phase is _Phase.STARTING:
            self._on_failed_start(slot, f"a worker process {how} while starting")
            return
        if not slot.tickets:
            self._restart(slot)
            return
        running, ticket = slot.phase is _Phase.RUNNING, slot.tickets[0]
        ticket.ends += 1
        if ticket.ends < (self._attempts if running else _MOST_NOT_STARTED):
            job = self._describe(ticket.job)
            what = f"while it ran {job}; running it again" if running else f"before it took {job}; sending it again"
            self._notify(f"a worker process {how} {what}")
            self._restart(slot)
        else:
            slot.tickets.popleft()
            reason = f"its process {how}" + ("" if running else f" before it took the job, {ticket.ends} times")
            self._restart(slot, Outcome(ticket.job, None, Loss.DIED, reason))

    def _on_failed_start(self, slot: _Slot[J, R], reason: str) -> None:
        """Try again after a pause, or give up the slot."""
        self._end(slot)
        if not slot.was_ready:
            self._give_up(slot, GemmtuneError(reason))
        elif slot.failed_starts < len(_PAUSES_SECONDS):
            slot.enter(_Phase.PAUSED, time.monotonic() + _PAUSES_SECONDS[slot.failed_starts])
            slot.failed_starts += 1
            self._notify(f"{self._name}: no new worker process ({reason}); trying again")
        else:
            starts = f"{slot.failed_starts + 1} worker processes in a row could not start (last: {reason})"
            way_out = f"what was measured is kept; give the command again once {self._name} is back"
            self._give_up(slot, Quarantined(f"{self._name} is quarantined: {starts}; {way_out}"))

    def _give_up(self, slot: _Slot[J, R], error: GemmtuneError) -> None:
        self._slots.remove(slot)
        if slot.withheld is not None:
            self._queue.appendleft(_Ticket(slot.withheld.job))
        self._errors.append(error)

    def _restart(self, slot: _Slot[J, R], withheld: Outcome[J, R] | None = None) -> None:
        """Replace the process, queue its remaining jobs again, and report `withheld` once the next one is ready."""
        self._queue.extendleft(reversed(slot.tickets))
        slot.tickets.clear()
        slot.withheld = withheld
        self._end(slot)
        self._start(slot)

    def _start(self, slot: _Slot[J, R]) -> None:
        slot.process, self._spare = self._spare or self._new_process(), None
        number = slot.process.connection.fileno()
        self._of_number[number] = slot
        self._poll.register(number, select.EPOLLIN)
        slot.process.begin()
        slot.enter(_Phase.STARTING, time.monotonic() + self._start_seconds)

    def _end(self, slot: _Slot[J, R]) -> None:
        """Kill a slot's process, if there is one."""
        if slot.process is not None:
            self._poll.unregister(slot.process.connection.fileno())
            del self._of_number[slot.process.connection.fileno()]
            slot.process.end()
            slot.process = None


def wait_for_any(pools: Iterable[ProcessPool[J, R]], timeout_seconds: float) -> list[ProcessPool[J, R]]:
    """Wait until a pool has something to receive, a deadline passes, or the timeout ends; return those that have."""
    poll, until = select.poll(), time.monotonic() + timeout_seconds
    waiting = [(pool, pool.fileno(), pool.next_deadline()) for pool in pools]
    for _, number, deadline in waiting:
        poll.register(number, select.POLLIN)
        until = min(until, deadline)
    ready = dict(poll.poll(max(math.ceil(1e3 * (until - time.monotonic())), 0)))
    now = time.monotonic()
    return [pool for pool, number, deadline in waiting if number in ready or deadline <= now]
