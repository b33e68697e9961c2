"""Jobs over places: each place runs a few at a time, and one that is lost costs none of them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gemmtune.engine.processes.process_pool import Notify, Outcome, log_notice
from gemmtune.engine.records.errors import GemmtuneError

__all__ = ["Done", "Place", "Pool"]

J = TypeVar("J")
R = TypeVar("R")

_AHEAD = 2
"""Jobs a place is given for each that it runs: the next one is there when the last one ends."""

_WORTH_A_MOVE = 64
"""Jobs that must wait at their home before another place helps, which makes a problem's operands and reference level
first. Chosen, not measured: 64 jobs are 0.12 s of one GPU's time (one H200, experiments/measurement)."""


class Place(Protocol[J, R]):
    """What runs jobs somewhere: a `ProcessPool` is one, and so is an actor on another machine."""

    @property
    def size(self) -> int:
        """Jobs it runs at a time; 0 while it has not started, and once it is lost."""

    def submit(self, job: J) -> None:
        """Enqueue a job; returns at once."""

    def collect(self) -> list[Outcome[J, R]]:
        """The jobs that finished or were lost since the last call, each as it was submitted; never waits.

        Raises:
            GemmtuneError: something cannot start; with `size` 0 the place is lost, and its jobs with it.
        """

    def close(self) -> None:
        """End what runs; unfinished jobs are dropped."""


@dataclass(frozen=True, slots=True)
class Done(Generic[J, R]):
    """A job that is over."""

    outcome: Outcome[J, R]
    """How."""
    place: str
    """Where."""


@dataclass(slots=True)
class _Seat(Generic[J, R]):
    place: Place[J, R]
    given: dict[int, J] = field(default_factory=dict)
    """Jobs that have not come back, by identity, in the order they were given."""

    @property
    def load(self) -> float:
        size = self.place.size
        return len(self.given) / size if size else float("inf")


class Pool(Generic[J, R]):
    """Hands jobs to places, and to another one when a place is lost."""

    def __init__(
        self,
        places: Mapping[str, Place[J, R]],
        *,
        ahead: int = _AHEAD,
        grain: int = 1,
        home: Callable[[J], Hashable] | None = None,
        notify: Notify = log_notice,
    ) -> None:
        """Begin.

        Args:
            places: by name. The pool closes them.
            ahead: jobs a place is given for each that it runs, the running one included; the others wait here.
            grain: jobs that are handed out together, to one place: more than one where they travel together.
            home: what a place sets itself up for to run the job. Jobs of one kind go to one place, until more of them
                wait than setting up another place is worth. None where nothing is set up.
            notify: receives a line for each place that is lost or given up.
        """
        self._seats = {name: _Seat(place) for name, place in places.items()}
        self._ahead = ahead
        self._grain = grain
        self._home = home
        self._waiting: dict[Hashable, deque[J]] = {}
        self._homes: dict[Hashable, list[str]] = {}
        self._retired: list[Place[J, R]] = []
        self._notify = notify
        self._lost: GemmtuneError | None = None
        self._pending = 0
        self._held = 0

    @property
    def pending(self) -> int:
        """Jobs submitted and not yet collected."""
        return self._pending

    @property
    def room(self) -> int:
        """Jobs that would not wait here if they were submitted now."""
        return self._ahead * sum(seat.place.size for seat in self._seats.values()) - self._pending

    @property
    def busy(self) -> dict[str, bool]:
        """Whether each place has a job at hand."""
        return {name: bool(seat.given) for name, seat in self._seats.items()}

    def submit(self, job: J) -> None:
        """Enqueue a job; it is handed out with others of its grain, or at the next `flush` or `collect`."""
        self._waiting.setdefault(self._kind(job), deque()).append(job)
        self._pending += 1
        self._held += 1
        if self._held >= self._grain:
            self.flush()

    def collect(self) -> list[Done[J, R]]:
        """The jobs that are over since the last call; never waits.

        Raises:
            GemmtuneError: no place is left. Only a call that has nothing to return raises.
        """
        done = []
        for name, seat in tuple(self._seats.items()):
            try:
                outcomes = seat.place.collect()
            except GemmtuneError as error:
                self._troubled(name, seat, error)
                continue
            for outcome in outcomes:
                del seat.given[id(outcome.job)]
                done.append(Done(outcome, name))
        self._pending -= len(done)
        self.flush()
        if self._lost is not None and not self._seats and not done:
            raise self._lost
        return done

    def flush(self) -> None:
        """Hand out what waits: some a round to each place, the least loaded first."""
        self._held = 0
        if self._waiting:
            seats = sorted(self._seats.items(), key=lambda named: named[1].load)
            while sum(self._give(name, seat) for name, seat in seats):
                pass  # until a round in which nobody took any

    def add(self, name: str, place: Place[J, R]) -> None:
        """One place more."""
        self._seats[name] = _Seat(place)

    def retire(self, name: str, reason: str) -> None:
        """Give no more jobs to a place, and those it has to the others. The last one stays."""
        if name in self._seats and len(self._seats) > 1:
            self._notify(f"{name} is quarantined: {reason}; its jobs go elsewhere")
            self._leave(name)

    def close(self) -> None:
        """End what runs."""
        for place in (*(seat.place for seat in self._seats.values()), *self._retired):
            place.close()
        self._seats.clear()
        self._waiting.clear()

    def _kind(self, job: J) -> Hashable:
        return self._home(job) if self._home else None

    def _give(self, name: str, seat: _Seat[J, R]) -> bool:
        """Give a place its share of a round; whether it took any."""
        room = self._ahead * seat.place.size - len(seat.given)
        for number in range(min(room, self._grain)):
            job = self._next_for(name)
            if job is None:
                return number > 0
            seat.given[id(job)] = job
            seat.place.submit(job)
        return room > 0

    def _next_for(self, name: str) -> J | None:
        """The oldest job of a kind at home there, or else of one that needs a home; None where the rest may wait."""
        for kind in self._waiting:
            if name in self._homes.get(kind, ()):
                return self._take(kind)
        for kind, jobs in self._waiting.items():
            homes = self._homes.setdefault(kind, []) if self._home else []
            if len(jobs) >= _WORTH_A_MOVE * len(homes):
                homes.append(name)
                return self._take(kind)
        return None

    def _take(self, kind: Hashable) -> J:
        jobs = self._waiting[kind]
        job = jobs.popleft()
        if not jobs:
            del self._waiting[kind]
        return job

    def _troubled(self, name: str, seat: _Seat[J, R], error: GemmtuneError) -> None:
        if seat.place.size:
            self._notify(str(error))
            return
        self._lost = error
        if len(self._seats) > 1:
            self._notify(f"{error}; the others go on")
        self._leave(name)

    def _leave(self, name: str) -> None:
        """Take a place off the list; what it was given goes first in the queue."""
        seat = self._seats.pop(name)
        self._retired.append(seat.place)
        for homes in self._homes.values():
            if name in homes:
                homes.remove(name)
        for job in reversed(seat.given.values()):
            self._waiting.setdefault(self._kind(job), deque()).appendleft(job)
