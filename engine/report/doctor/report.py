"""Report of `gemmtune doctor`: checks with their remedies."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from gemmtune.engine.report.layout import Report


class Level(StrEnum):
    """Severity of a check's result."""

    OK = "ok"  # nothing needs to be done
    ADVICE = "advice"  # gemmtune works, and could do more
    FAULT = "fault"  # gemmtune cannot measure or store here


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check."""

    name: str  # subject, such as `torch`
    level: Level
    found: str  # result on one line
    remedies: tuple[str, ...] = ()  # each on one line; empty where the level is ok


def healthy(checks: Sequence[Check]) -> bool:
    """Return whether gemmtune can measure and store here."""
    return all(check.level is not Level.FAULT for check in checks)


def doctor_report(checks: Sequence[Check]) -> Report:
    """Report each check on a line; a single remedy stands on it, several below it."""
    levels, names = max(len(c.level) for c in checks), max(len(c.name) for c in checks)
    lines = []
    for check in checks:
        head = f"{check.level:<{levels}}  {check.name:<{names}}  {check.found}"
        if len(check.remedies) == 1:
            lines.append(f"{head}: {check.remedies[0]}")
        else:
            lines += [head, *(f"{'':{levels + 2}}- {remedy}" for remedy in check.remedies)]
    return Report({"healthy": healthy(checks), "checks": checks}, ["\n".join(lines)])


def fine(name: str, found: str) -> Check:
    """Return a check that found nothing to repair."""
    return Check(name, Level.OK, found)


def advice(name: str, found: str, *remedies: str) -> Check:
    """Return a check of something that could be better."""
    return Check(name, Level.ADVICE, found, remedies)


def fault(name: str, found: str, *remedies: str) -> Check:
    """Return a check of something that must be repaired."""
    return Check(name, Level.FAULT, found, remedies)
