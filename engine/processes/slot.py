"""A place in a pool of processes: the process in it, the job that it runs, and what waits for its successor."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Generic, TypeVar

from gemmtune.engine.processes.child_process import ServedProcess

__all__ = ["Loss", "Outcome", "Phase", "Slot", "Ticket"]

J = TypeVar("J")
R = TypeVar("R")


class Loss(StrEnum):
    """Why a job has no result."""

    TIMED_OUT = "timed_out"
    """It passed its deadline and its process was killed."""
    DIED = "died"
    """Its process ended by itself, as often as `attempts` allows."""


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


class Phase(Enum):
    """What a place waits for."""

    VACANT = auto()
    """The time of the next start; there is no process."""
    STARTING = auto()
    """Its process, to be ready."""
    IDLE = auto()
    """A job."""
    SENT = auto()
    """Its process, to acknowledge the job."""
    RUNNING = auto()
    """The result."""


@dataclass(slots=True)
class Ticket(Generic[J]):
    """A job on its way to an outcome."""

    job: J
    """As it was submitted."""
    deaths: int = 0
    """Processes that died while they ran it."""
    not_taken: int = 0
    """Processes that were done for before they acknowledged it."""


class Slot(Generic[J, R]):
    """One process's place: what it does, and what waits for its successor."""

    def __init__(self) -> None:
        self.process: ServedProcess | None = None
        self.phase = Phase.VACANT
        self.deadline = 0.0
        self.ticket: Ticket[J] | None = None
        self.following: Ticket[J] | None = None
        self.withheld: Outcome[J, R] | None = None
        self.was_ready = False
        self.failed_starts = 0

    def enter(self, phase: Phase, deadline: float = float("inf")) -> None:
        """Begin a phase that is over at `deadline`."""
        self.phase, self.deadline = phase, deadline

    def speaks(self, readable: Container[int]) -> bool:
        """Whether its process is among those, by the number of its connection, that have something to say."""
        return self.process is not None and self.process.connection.fileno() in readable

    def taken(self) -> Ticket[J]:
        """The job, which is taken off the process; the following one, if it has been sent, takes its place."""
        assert self.ticket is not None
        ticket, self.ticket, self.following = self.ticket, self.following, None
        return ticket

    def proven(self) -> Outcome[J, R] | None:
        """The process is ready, so the machine is not at fault for what ended the one before: its outcome stands."""
        self.enter(Phase.IDLE)
        self.was_ready, self.failed_starts = True, 0
        outcome, self.withheld = self.withheld, None
        return outcome

    def vacate(self) -> None:
        """End the process."""
        assert self.process is not None
        self.process.end()
        self.process = None
