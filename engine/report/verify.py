"""Report of `gemmtune verify`: every row, and whether it holds."""

from __future__ import annotations

from gemmtune.engine.campaign.verify import Check, Verified
from gemmtune.engine.records.device import Device
from gemmtune.engine.report.layout import Grid, Report, choice_text, count, json_fields, microseconds
from gemmtune.engine.report.ranges import range_text
from gemmtune.engine.tables.ranges import of_one_gemm

__all__ = ["verify_report"]

_HEADERS = ("problem", "runs", "µs said", "µs now", "loss", "holds", "config")
_LEFT = ("problem", "runs", "holds", "config")


def verify_report(found: Verified) -> Report:
    """Report each row, the ranges that do not hold, and what was repaired."""
    device = found.repaired.device
    lines = [_line(check, check.problem.name, device) for check in found.rows]
    lines += [
        _line(check, f"{range_text(its.row)} at {check.problem.m}", device)
        for its in found.ranges
        for check in its.checks
        if not check.holds
    ]
    holding = f"{count(sum(check.holds for check in found.rows), 'row')} of {len(found.rows)} hold"
    if found.ranges:
        holding += f", {count(sum(its.holds for its in found.ranges), 'range')} of {len(found.ranges)}"
    record = {
        "holds": found.holds,
        "rows": [_check(check) for check in found.rows],
        "ranges": [
            json_fields(its.row, "problem", "first", "last")
            | {"holds": its.holds, "sizes": [_check(check) for check in its.checks]}
            for its in found.ranges
        ],
    }
    return Report(record, [Grid.of_rows(_HEADERS, lines, _LEFT), "; ".join([holding, *_repaired(found)])])


def _repaired(found: Verified) -> list[str]:
    """Return what was replaced, rebuilt and dropped; nothing for a table that holds."""
    failed = {check.problem for check in found.rows if not check.holds}
    replaced = len(failed & {row.problem for row in found.repaired.rows})
    ranged = {of_one_gemm(row.problem) for row in found.repaired.ranges}
    broken = [its.row for its in found.ranges if not its.holds]
    probed = {of_one_gemm(its.row.problem) for its in found.ranges if its.row.probed}
    rebuilt = {of_one_gemm(row.problem) for row in broken} & probed & ranged
    dropped = sum(of_one_gemm(row.problem) not in rebuilt for row in broken)
    repaired = {
        f"{count(replaced, 'row')} replaced by {'its' if replaced == 1 else 'their'} best contender": replaced,
        f"{count(len(failed) - replaced, 'row')} dropped (no contender works)": len(failed) - replaced,
        f"ranges of {count(len(rebuilt), 'GEMM')} rebuilt": len(rebuilt),
        f"{count(dropped, 'range')} dropped (no probes: tune again)": dropped,
    }
    return [text for text, number in repaired.items() if number]


def _line(check: Check, name: str, device: Device) -> list[str]:
    choice = check.choice
    return [
        name,
        choice.space,
        microseconds(choice.time_ns),
        microseconds(check.time_ns),
        "-" if check.loss is None else f"{check.loss:.1%}",
        "yes" if check.holds else "no" if check.loss is not None else "does not work",
        choice_text(device, check.problem, choice),
    ]


def _check(check: Check) -> dict[str, object]:
    return {
        "problem": check.problem.name,
        **json_fields(check.choice, "space", "config"),
        "said_ns": check.choice.time_ns,
        **json_fields(check, "time_ns", "loss", "holds"),
    }
