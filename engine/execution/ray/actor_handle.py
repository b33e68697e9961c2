"""The driver's end of an actor: jobs out, outcomes in; when the actor is gone, another one gets its jobs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Generic, Protocol, TypeVar, cast

from gemmtune.engine.execution.ray.actor import Reply
from gemmtune.engine.execution.ray.artifact_transfer import Cellar, unpacked
from gemmtune.engine.processes.process_pool import Loss, Notify, Outcome, log_notice
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Actor", "RayPlace"]

J = TypeVar("J")
R = TypeVar("R")

_MOST_ENDS = 5
"""Actors that may end in a row, none with an outcome, until their place is given up."""

_MOST_DEATHS = 3
"""Actors that may end while they have one job. The job runs in a process below the actor, which outlives it by right:
an actor that ends is hardly the job's doing, so the job has one chance more than where its own process ends."""

_START_SECONDS = 300.0
"""An actor waits for its share of a cluster that others use too."""

Heard = Callable[[Reply | str], None]
"""Called once, from any thread: with the reply, or with how the actor ended."""


@dataclass(slots=True)
class Ticket(Generic[J]):
    """A job and the number of actors that ended while they had it."""

    job: J
    deaths: int = 0


class Actor(Protocol):
    """A `Host` that runs somewhere."""

    def begin(self, heard: Heard) -> None:
        """Ask whether it is there."""

    def run(self, jobs: Sequence[object], files: dict[str, str], heard: Heard) -> None:
        """Call its `run` with the jobs and the binaries, digest to file."""

    def end(self, *, began: bool) -> None:
        """End it and what it started; one that `began` may be asked to."""


class RayPlace(Generic[J, R]):
    """One place of a pool, in an actor. Not safe between threads, but for what `heard` does."""

    def __init__(
        self,
        name: str,
        start: Callable[[], Actor],
        is_there: Callable[[], bool],
        folder: Path,
        wake: Event,
        batch: int = 1,
        notify: Notify = log_notice,
    ) -> None:
        """Start the actor.

        Args:
            name: for messages.
            start: starts one actor, at once or when the cluster has room.
            is_there: whether the machine is still part of the cluster.
            folder: for the binaries that come back.
            wake: set when there is something to collect.
            batch: jobs that travel together and whose outcomes return together: more than one only where they take
                less time than their way.
            notify: receives a line for each actor that ends, and whatever the actor has to say.
        """
        self._name = name
        self._start = start
        self._is_there = is_there
        self._folder = folder
        self._wake = wake
        self._batch = batch
        self._notify = notify
        self._size = 0
        self._generation = 0
        self._ends = 0
        self._waiting: deque[Ticket[J]] = deque()
        self._calls: dict[int, list[Ticket[J]]] = {}
        self._called = 0
        self._heard: deque[tuple[int, int, Reply | str]] = deque()
        self._lost: GemmtuneError | None = None
        self._begin()

    @property
    def size(self) -> int:
        """Jobs the actor runs at a time; 0 while there is none."""
        return 0 if self._lost else self._size

    def submit(self, job: J) -> None:
        """Queue a job, which leaves with its batch or at the next `flush`."""
        self._waiting.append(Ticket(job))
        if len(self._waiting) >= self._batch:
            self.flush()

    def flush(self) -> None:
        """Send what waits."""
        while self._waiting and self._size:
            suspect = self._waiting[0].deaths > 1
            held = any(ticket.deaths > 1 for call in self._calls.values() for ticket in call)
            if held or (suspect and self._calls):
                return  # what has met two ends runs alone: of a third it is then guilty
            count = 1 if suspect else min(self._batch, len(self._waiting))
            call = [self._waiting.popleft() for _ in range(count)]
            jobs = [ticket.job for ticket in call]
            files = {digest: path for job in jobs for digest, path in Cellar.needs(job).items()}
            self._calls[self._called] = call
            self._actor.run(jobs, files, self._listener())

    def collect(self) -> list[Outcome[J, R]]:
        """What came back.

        Raises:
            GemmtuneError: the place is lost.
        """
        outcomes: list[Outcome[J, R]] = []
        while self._heard:
            generation, number, said = self._heard.popleft()
            if generation != self._generation:
                continue  # of an actor that is given up: its jobs are on their way again
            if isinstance(said, str):
                outcomes += self._ended(said)
            else:
                outcomes += self._returned(self._calls.pop(number, []), said)
        if not self._size and not self._lost and time.monotonic() > self._patience_ends:
            self._lost = GemmtuneError(f"{self._name}: the cluster had no room for it in {_START_SECONDS:g} s")
        if self._lost and not outcomes:
            raise self._lost
        self.flush()
        return outcomes

    def close(self) -> None:
        """End the actor."""
        self._generation += 1
        self._actor.end(began=self._size > 0)

    def _begin(self) -> None:
        self._patience_ends = time.monotonic() + _START_SECONDS
        self._actor = self._start()
        self._actor.begin(self._listener())

    def _listener(self) -> Heard:
        generation, number = self._generation, self._called
        self._called += 1

        def heard(said: Reply | str) -> None:
            self._heard.append((generation, number, said))
            self._wake.set()

        return heard

    def _returned(self, call: Sequence[Ticket[J]], reply: Reply) -> list[Outcome[J, R]]:
        self._size = reply.size
        for notice in reply.notices:
            self._notify(notice)
        if reply.lost:
            self._lost = GemmtuneError(f"{self._name}: {reply.lost}")
        outcomes = []
        for ticket, outcome in zip(call, reply.outcomes, strict=True):
            if outcome is not None:  # else it is still the pool's, which hands it on
                self._ends = 0
                result = cast("R | None", unpacked(outcome.result, self._folder))
                outcomes.append(Outcome(ticket.job, result, outcome.loss, outcome.reason))
        return outcomes

    def _ended(self, how: str) -> list[Outcome[J, R]]:
        """Start another actor, or give the place up; the jobs that too many actors have ended with are lost."""
        self._generation += 1
        self._size = 0
        self._ends += 1
        met = [ticket for call in self._calls.values() for ticket in call]
        self._calls.clear()
        for ticket in met:
            ticket.deaths += 1
        again = [ticket for ticket in met if ticket.deaths < _MOST_DEATHS]
        self._waiting.extendleft(reversed(again))
        jobs = f"; running {len(again)} jobs again" if again else ""
        self._actor.end(began=False)
        if not self._is_there():
            self._lost = GemmtuneError(f"{self._name} is gone: its machine has left the cluster")
        elif self._ends >= _MOST_ENDS:
            self._lost = GemmtuneError(f"{self._name} is quarantined: {self._ends} actors in a row ended (last: {how})")
        else:
            self._notify(f"{self._name}: an actor ended ({how}){jobs}")
            self._begin()
        reason = f"{_MOST_DEATHS} actors ended while they had it (last: {how})"
        return [Outcome(t.job, None, Loss.DIED, reason) for t in met if t.deaths >= _MOST_DEATHS]
