"""One line of `gemmtune doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Check", "Level", "advice", "fault", "fine"]


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    """Nothing to do."""
    ADVICE = "advice"
    """Works, with less than there could be."""
    FAULT = "fault"
    """Keeps gemmtune from measuring or storing here."""


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, and what it was like."""

    name: str
    """What was looked at, `torch`."""
    level: Level
    """How bad it is."""
    found: str
    """What there is, on one line."""
    remedies: tuple[str, ...] = ()
    """What helps, each on one line; none where it is ok."""


def fine(name: str, found: str) -> Check:
    """A check that found nothing to mend."""
    return Check(name, Level.OK, found)


def advice(name: str, found: str, *remedies: str) -> Check:
    """A check of something that could be better."""
    return Check(name, Level.ADVICE, found, remedies)


def fault(name: str, found: str, *remedies: str) -> Check:
    """A check of something that has to be mended."""
    return Check(name, Level.FAULT, found, remedies)
