"""Report of `gemmtune doctor`: checks with their remedies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmtune.engine.report.layout import json_fields

__all__ = ["Check", "DoctorReport", "Level", "advice", "fault", "fine"]


class Level(StrEnum):
    """Severity of a check's result."""

    OK = "ok"
    """Nothing needs to be done."""
    ADVICE = "advice"
    """gemmtune works, and could do more."""
    FAULT = "fault"
    """gemmtune cannot measure or store here."""


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str
    """Subject of the check, such as `torch`."""
    level: Level
    """Severity of the result."""
    found: str
    """Result on one line."""
    remedies: tuple[str, ...] = ()
    """Remedies, each on one line; empty where the level is ok."""


@dataclass(frozen=True, slots=True)
class DoctorReport:
    """Checks of one machine."""

    checks: Sequence[Check]
    """Checks in the order of the report."""

    @property
    def healthy(self) -> bool:
        """Whether gemmtune can measure and store here."""
        return all(check.level is not Level.FAULT for check in self.checks)

    def to_text(self, width: int | None = None) -> str:
        """Return a line per check; a single remedy stands on it, several below it."""
        levels, names = max(len(c.level) for c in self.checks), max(len(c.name) for c in self.checks)
        lines = []
        for check in self.checks:
            head = f"{check.level:<{levels}}  {check.name:<{names}}  {check.found}"
            if len(check.remedies) == 1:
                lines.append(f"{head}: {check.remedies[0]}")
            else:
                lines += [head, *(f"{'':{levels + 2}}- {remedy}" for remedy in check.remedies)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        checks = [json_fields(check, "name", "level", "found", "remedies") for check in self.checks]
        return {"healthy": self.healthy, "checks": checks}


def fine(name: str, found: str) -> Check:
    """Return a check that found nothing to repair."""
    return Check(name, Level.OK, found)


def advice(name: str, found: str, *remedies: str) -> Check:
    """Return a check of something that could be better."""
    return Check(name, Level.ADVICE, found, remedies)


def fault(name: str, found: str, *remedies: str) -> Check:
    """Return a check of something that must be repaired."""
    return Check(name, Level.FAULT, found, remedies)
