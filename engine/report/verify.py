"""What `verify` prints: a line a row, and whether it holds."""

from __future__ import annotations

from gemmtune.engine.campaign.verify import Check, Verified
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, microseconds, table_text
from gemmtune.engine.report.ranges import of_any_m

__all__ = ["verification", "verification_record"]

_HEADERS = ("problem", "runs", "µs said", "µs now", "loss", "holds", "config")
_LEFT = ("problem", "runs", "holds", "config")


def verification(found: Verified, width: int | None = None) -> str:
    """Every row; below, the ranges that do not hold, and the count."""
    lines = [_line(check, found) for check in found.rows]
    lines += [
        _line(check, found, f"{of_any_m(its.row.problem)}, m {its.row.first}–{its.row.last} at {check.problem.m}")
        for its in found.ranges
        for check in its.checks
        if not check.holds
    ]
    failed = sum(not check.holds for check in found.rows)
    holding = sum(its.holds for its in found.ranges)
    said = f"{count(len(found.rows) - failed, 'row')} of {len(found.rows)} hold"
    if found.ranges:
        said += f", {count(holding, 'range')} of {len(found.ranges)}"
    if not found.holds:
        said += "; mended: the other rows have their best contender, and where a range does not hold, those of its GEMM"
        said += " are made anew of what was measured now, or it is gone if nothing was probed: tune again"
    return f"{table_text(_HEADERS, lines, _LEFT, width)}\n\n{said}"


def verification_record(found: Verified) -> dict[str, object]:
    """The same for programs."""
    return {
        "holds": found.holds,
        "rows": [_record(check) for check in found.rows],
        "ranges": [
            {
                "problem": its.row.problem.name,
                "first": its.row.first,
                "last": its.row.last,
                "holds": its.holds,
                "sizes": [_record(check) for check in its.checks],
            }
            for its in found.ranges
        ],
    }


def _line(check: Check, found: Verified, name: str = "") -> list[str]:
    choice = check.choice
    return [
        name or check.problem.name,
        choice.space,
        microseconds(choice.time_ns),
        microseconds(check.time_ns),
        "-" if check.loss is None else f"{check.loss:.1%}",
        "yes" if check.holds else "no" if check.loss is not None else "does not work",
        config_text(Task(check.problem, found.mended.device, choice.space), choice.config),
    ]


def _record(check: Check) -> dict[str, object]:
    return {
        "problem": check.problem.name,
        "space": check.choice.space,
        "config": dict(check.choice.config),
        "said_ns": check.choice.time_ns,
        "time_ns": check.time_ns,
        "loss": check.loss,
        "holds": check.holds,
    }
