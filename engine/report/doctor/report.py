"""What `gemmtune doctor` prints: all that gemmtune needs or can use, and what to do where it is not right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata

from gemmtune.engine.report.doctor.check import Check, Level
from gemmtune.engine.report.doctor.gpu import gpu_checks
from gemmtune.engine.report.doctor.host import (
    bytecode_check,
    compiler_checks,
    database_check,
    package_checks,
    ray_check,
)

__all__ = ["doctor", "doctor_record", "examine", "healthy"]


def examine(database: str, environment: Mapping[str, str]) -> list[Check]:
    """Look at everything; no setting is changed, nothing is started.

    Args:
        database: file or URL.
        environment: what CC and RAY_ADDRESS are read from.
    """
    of_gpu = gpu_checks()
    has_gpu = of_gpu[0].level is Level.OK
    return [
        *of_gpu,
        *package_checks(metadata.requires("gemmtune") or [], has_gpu),
        bytecode_check(),
        *compiler_checks(environment),
        ray_check(environment.get("RAY_ADDRESS")),
        database_check(database),
    ]


def healthy(checks: Sequence[Check]) -> bool:
    """Whether nothing keeps gemmtune from measuring and storing here."""
    return all(check.level is not Level.FAULT for check in checks)


def doctor(checks: Sequence[Check]) -> str:
    """A line a check; a single remedy stands on it, several below it."""
    levels, names = max(len(c.level) for c in checks), max(len(c.name) for c in checks)
    lines = []
    for check in checks:
        head = f"{check.level:<{levels}}  {check.name:<{names}}  {check.found}"
        if len(check.remedies) == 1:
            lines.append(f"{head}: {check.remedies[0]}")
        else:
            lines += [head, *(f"{'':{levels + 2}}- {remedy}" for remedy in check.remedies)]
    return "\n".join(lines)


def doctor_record(checks: Sequence[Check]) -> dict[str, object]:
    """The same for programs."""
    return {
        "healthy": healthy(checks),
        "checks": [
            {"name": c.name, "level": c.level.value, "found": c.found, "remedies": list(c.remedies)} for c in checks
        ],
    }
