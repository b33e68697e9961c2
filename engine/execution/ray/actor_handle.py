"""The driver's handle of an actor: sends jobs, receives outcomes, and replaces an actor that ended."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Generic, Protocol, TypeVar, cast

from gemmtune.engine.execution.ray.actor import Reply
from gemmtune.engine.execution.ray.artifact_transfer import with_binary
from gemmtune.engine.processes.process_pool import Loss, Notify, Outcome, log_notice
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["ActorHandle", "OnReply", "RemoteActor"]

J = TypeVar("J")
R = TypeVar("R")

_MOST_ENDS = 5
"""Actors that may end in a row without an outcome before the handle gives up."""

_MOST_ENDS_PER_JOB = 3
"""Actors that may end while they have one job. The job runs in a process below the actor, so that the job is hardly to
blame: it gets one attempt more than in a process pool."""

_START_SECONDS = 300.0
"""Longest wait for an actor, which needs its share of a cluster that others use too."""

OnReply = Callable[[Reply | str], None]
"""Called once, from any thread, with the reply or with how the actor ended."""


class RemoteActor(Protocol):
    """A `JobActor` that runs somewhere."""

    def begin(self, on_reply: OnReply) -> None:
        """Call the actor's `begin`."""

    def run(self, job: object, on_reply: OnReply) -> None:
        """Call the actor's `run` with the job and its binaries."""

    def end(self, *, began: bool) -> None:
        """End the actor and its processes; an actor that `began` is asked to close first."""


@dataclass(slots=True, eq=False)
class _Ticket(Generic[J]):
    job: J
    ends: int = 0
    """Actors that ended while they had the job."""


class ActorHandle(Generic[J, R]):
    """A dispatcher's worker in an actor. Only replies may come from other threads."""

    def __init__(
        self,
        name: str,
        start: Callable[[], RemoteActor],
        machine_is_alive: Callable[[], bool],
        folder: Path,
        wake: Event,
        notify: Notify = log_notice,
    ) -> None:
        """Start the actor.

        Args:
            name: for messages.
            start: starts an actor, at once or when the cluster has room.
            machine_is_alive: whether the machine is still part of the cluster.
            folder: receives the binaries that come back.
            wake: set when there is something to collect.
            notify: receives the actor's notices, and a line per actor that ends.
        """
        self._name = name
        self._start = start
        self._machine_is_alive = machine_is_alive
        self._folder = folder
        self._wake = wake
        self._notify = notify
        self._ends = 0
        self._waiting: deque[_Ticket[J]] = deque()
        self._lost: GemmtuneError | None = None
        self._begin()

    @property
    def size(self) -> int:
        """Jobs that the actor runs at a time; 0 while there is no actor."""
        return 0 if self._lost else self._size

    def submit(self, job: J) -> None:
        """Queue a job and send it if the actor is there."""
        self._waiting.append(_Ticket(job))
        self._send()

    def collect(self) -> list[Outcome[J, R]]:
        """Return the outcomes that arrived.

        Raises:
            GemmtuneError: the worker is lost.
        """
        outcomes: list[Outcome[J, R]] = []
        while self._replies:
            ticket, reply = self._replies.popleft()
            if isinstance(reply, str):
                outcomes += self._on_end(reply)
            else:
                outcomes += self._on_reply(ticket, reply)
        if not self._size and not self._lost and time.monotonic() > self._start_deadline:
            self._lost = GemmtuneError(f"{self._name}: the cluster had no room for it in {_START_SECONDS:g} s")
        if self._lost and not outcomes:
            raise self._lost
        self._send()
        return outcomes

    def close(self) -> None:
        """End the actor and its processes."""
        self._actor.end(began=self._size > 0)

    def _begin(self) -> None:
        self._size = 0
        self._sent: list[_Ticket[J]] = []
        # A late reply of an earlier actor lands in that actor's own queue, which nobody reads.
        self._replies: deque[tuple[_Ticket[J] | None, Reply | str]] = deque()
        self._start_deadline = time.monotonic() + _START_SECONDS
        self._actor = self._start()
        self._actor.begin(self._listener(None))

    def _listener(self, ticket: _Ticket[J] | None) -> OnReply:
        replies = self._replies

        def on_reply(reply: Reply | str) -> None:
            replies.append((ticket, reply))
            self._wake.set()

        return on_reply

    def _send(self) -> None:
        """Send waiting jobs; a job that met all ends but one runs alone, so that the last one proves its guilt."""
        while self._waiting and self._size:
            suspect = self._waiting[0].ends == _MOST_ENDS_PER_JOB - 1
            if (suspect and self._sent) or any(each.ends == _MOST_ENDS_PER_JOB - 1 for each in self._sent):
                return
            ticket = self._waiting.popleft()
            self._sent.append(ticket)
            self._actor.run(ticket.job, self._listener(ticket))

    def _on_reply(self, ticket: _Ticket[J] | None, reply: Reply) -> list[Outcome[J, R]]:
        self._size = reply.size
        for notice in reply.notices:
            self._notify(notice)
        if reply.lost:
            self._lost = GemmtuneError(f"{self._name}: {reply.lost}")
        if ticket is None or reply.outcome is None:
            return []  # a job without an outcome stays the dispatcher's, which hands it to another worker
        self._ends = 0
        self._sent.remove(ticket)
        result = cast("R | None", with_binary(reply.outcome.result, reply.content, self._folder))
        return [Outcome(ticket.job, result, reply.outcome.loss, reply.outcome.reason)]

    def _on_end(self, how: str) -> list[Outcome[J, R]]:
        """Start another actor or give up; return the jobs that too many actors ended with."""
        self._ends += 1
        sent = self._sent
        for ticket in sent:
            ticket.ends += 1
        again = [ticket for ticket in sent if ticket.ends < _MOST_ENDS_PER_JOB]
        self._waiting.extendleft(reversed(again))
        self._actor.end(began=False)
        self._size, self._replies = 0, deque()
        if not self._machine_is_alive():
            self._lost = GemmtuneError(f"{self._name} is gone: its machine has left the cluster")
        elif self._ends >= _MOST_ENDS:
            self._lost = GemmtuneError(f"{self._name} is quarantined: {self._ends} actors in a row ended (last: {how})")
        else:
            repeats = f"; running {len(again)} jobs again" if again else ""
            self._notify(f"{self._name}: an actor ended ({how}){repeats}")
            self._begin()
        reason = f"{_MOST_ENDS_PER_JOB} actors ended while they had it (last: {how})"
        return [Outcome(each.job, None, Loss.DIED, reason) for each in sent if each.ends >= _MOST_ENDS_PER_JOB]
