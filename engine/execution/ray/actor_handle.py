"""The driver's handle of an actor: sends jobs, receives outcomes, and repeats jobs that an actor ended with."""

import contextlib
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Generic, TypeVar, cast

import ray
from ray.exceptions import ActorUnavailableError, ActorUnschedulableError

from gemmtune.engine.execution.ray.actor import Reply, pack_job, with_binary
from gemmtune.engine.io.blame import first_line
from gemmtune.engine.processes.process_pool import Loss, Notify, Outcome, log_notice
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.toolchain.board_facts import BoardFacts

J = TypeVar("J")
R = TypeVar("R")

_MOST_ENDS = 5
"""Times that an actor may end in a row without an outcome before the handle gives up."""

_MOST_ENDS_PER_JOB = 3
"""Times that an actor may end while it has one job. The job runs in a process below the actor, so that the job is
hardly to blame: it gets one attempt more than in a process pool."""

_END_SECONDS = 5.0
"""Longest wait for an actor to close."""


@dataclass(slots=True, eq=False)
class _Ticket(Generic[J]):
    job: J
    ends: int = 0
    """Times that the actor ended while it had the job."""
    start: int = 0
    """Number of the actor's start that the job was sent to."""


class ActorHandle(Generic[J, R]):
    """A dispatcher's worker in a `JobActor`, which Ray restarts on its node whenever it ends."""

    def __init__(
        self,
        name: str,
        actor: Any,  # noqa: ANN401 (an actor has no type)
        folder: Path,
        wake: Event,
        notify: Notify = log_notice,
    ) -> None:
        """Wait for no actor yet; `folder` receives the binaries that come back, and `wake` is set when there is one."""
        self._name = name
        self._actor = actor
        self._folder = folder
        self._wake = wake
        self._notify = notify
        self._ends = 0
        self._starts = 0
        self._waiting: deque[_Ticket[J]] = deque()
        self._sent: list[_Ticket[J]] = []
        self._replies: deque[tuple[_Ticket[J] | None, Future[Reply]]] = deque()  # other threads add replies
        self._lost: GemmtuneError | None = None
        self.board: BoardFacts | None = None
        """Facts of the worker's GPU, once it has started."""
        self._await_start()

    @property
    def size(self) -> int:
        """Jobs that the actor runs at a time; 0 while there is no actor, which waits for its share of the cluster."""
        return 0 if self._lost else self._size

    def refuse(self, reason: str) -> None:
        """Count the worker as lost, for this reason."""
        self._lost = GemmtuneError(f"{self._name}: {reason}")

    def submit(self, job: J) -> None:
        """Queue a job and send it if the actor is there."""
        self._waiting.append(_Ticket(job))
        self._send()

    def collect(self) -> list[Outcome[J, R]]:
        """Return the outcomes that arrived; raises GemmtuneError if the worker is lost."""
        outcomes: list[Outcome[J, R]] = []
        again: list[_Ticket[J]] = []
        while self._replies:
            ticket, reply = self._replies.popleft()
            if ticket is not None:
                self._sent.remove(ticket)
            error = reply.exception()
            if error is None:
                outcomes += self._on_reply(ticket, reply.result())
                continue
            self._on_error(ticket, error)
            if ticket is not None:
                ticket.ends += 1
                if ticket.ends < _MOST_ENDS_PER_JOB:
                    again.append(ticket)
                else:
                    reason = f"its actor ended {ticket.ends} times while it had the job (last: {first_line(error)})"
                    outcomes.append(Outcome(ticket.job, None, Loss.DIED, reason))
        self._waiting.extendleft(reversed(again))
        if self._lost and not outcomes:
            raise self._lost
        self._send()
        return outcomes

    def close(self) -> None:
        """End the actor and its processes."""
        if self._size:
            with contextlib.suppress(ray.exceptions.RayError):  # the actor or its node may be gone
                ray.get(self._actor.close.remote(), timeout=_END_SECONDS)
        ray.kill(self._actor)

    def _await_start(self) -> None:
        self._size = 0
        self._starts += 1
        self._listen(None, self._actor.begin.remote())

    def _send(self) -> None:
        """Send waiting jobs; a job that met all ends but one runs alone, so that the last one proves its guilt."""
        while self._waiting and self._size:
            suspect = self._waiting[0].ends == _MOST_ENDS_PER_JOB - 1
            if (suspect and self._sent) or any(each.ends == _MOST_ENDS_PER_JOB - 1 for each in self._sent):
                return
            ticket = self._waiting.popleft()
            ticket.start = self._starts
            self._sent.append(ticket)
            self._listen(ticket, self._actor.run.remote(pack_job(ticket.job)))

    def _listen(self, ticket: _Ticket[J] | None, reference: Any) -> None:  # noqa: ANN401
        def on_reply(reply: Future[Reply]) -> None:
            self._replies.append((ticket, reply))
            self._wake.set()

        reference.future().add_done_callback(on_reply)

    def _on_reply(self, ticket: _Ticket[J] | None, reply: Reply) -> list[Outcome[J, R]]:
        self._size, self.board = reply.size, reply.board or self.board
        for notice in reply.notices:
            self._notify(notice)
        if reply.lost:
            self._lost = GemmtuneError(f"{self._name}: {reply.lost}")
        if ticket is None or reply.outcome is None:
            return []  # a job without an outcome stays the dispatcher's, which hands it to another worker
        self._ends = 0
        result = cast("R | None", with_binary(reply.outcome.result, reply.content, self._folder))
        return [Outcome(ticket.job, result, reply.outcome.loss, reply.outcome.reason)]

    def _on_error(self, ticket: _Ticket[J] | None, error: BaseException) -> None:
        """Wait for the actor's restart, once per end, or give up."""
        if isinstance(error, ActorUnschedulableError):
            self._lost = GemmtuneError(f"{self._name} is gone: its machine has left the cluster")
        elif not isinstance(error, ActorUnavailableError):
            self._lost = GemmtuneError(f"{self._name} is lost: {description(error)}")
        elif ticket is None:  # it was called too soon after an end
            self._listen(None, self._actor.begin.remote())
        elif ticket.start == self._starts:  # the first call of several that end with their actor, in any order
            self._ends += 1
            self._notify(f"{self._name}: its actor ended ({first_line(error)})")
            self._await_start()
            if self._ends == _MOST_ENDS:
                self._lost = GemmtuneError(f"{self._name} is quarantined: its actor ended {_MOST_ENDS} times in a row")


def description(error: BaseException) -> str:
    """Return what was raised in the other process, or else what Ray says here."""
    lines = str(error).splitlines()
    raised = any(line.lstrip().startswith('File "') for line in lines)
    return lines[-1][:300] if raised else first_line(error)
