"""What `diff` prints: the rows in which two tables differ."""

from __future__ import annotations

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, microseconds, table_text
from gemmtune.engine.report.ranges import of_any_m, range_row_record
from gemmtune.engine.tables.diff import Change, TableDiff, terms

__all__ = ["diff", "diff_record"]

_HEADERS = ("change", "problem", "ran", "µs", "runs", "µs now", "shift", "config")
_LEFT = ("change", "problem", "ran", "runs", "config")


def diff(found: TableDiff, device: Device, width: int | None = None) -> str:
    """One line a row that differs: what ran before, what runs now, and its config."""
    lines = [
        *(_line("added", None, row, device) for row in found.added),
        *(_line("gone", row, None, device) for row in found.gone),
        *(_line("winner", c.before, c.after, device, _shift(c)) for c in found.winner),
        *(_line("terms", c.before, c.after, device) for c in found.terms),
        *(_line("time", c.before, c.after, device, _shift(c)) for c in found.time),
        *(_range_line("range added", row, device) for row in found.ranges_added),
        *(_range_line("range gone", row, device) for row in found.ranges_gone),
    ]
    if not lines:
        return "no difference"
    return f"{count(len(lines), 'difference')}\n\n{table_text(_HEADERS, lines, _LEFT, width)}"


def diff_record(found: TableDiff) -> dict[str, object]:
    """The same for programs."""
    return {
        "same": found.same,
        "added": [_row(row) for row in found.added],
        "gone": [_row(row) for row in found.gone],
        "winner": [_change(change) for change in found.winner],
        "terms": [_change(change) for change in found.terms],
        "time": [_change(change) for change in found.time],
        "ranges_added": [range_row_record(row) for row in found.ranges_added],
        "ranges_gone": [range_row_record(row) for row in found.ranges_gone],
    }


def _line(kind: str, before: Row | None, after: Row | None, device: Device, shift: str = "-") -> list[str]:
    row = after or before
    assert row is not None, f"{kind} without a row"
    first = row.choices[0]
    config = config_text(Task(row.problem, device, first.space), first.config)
    return [kind, row.problem.name, *_ran(before), *_ran(after), shift, config]


def _range_line(kind: str, row: RangeRow, device: Device) -> list[str]:
    ran = (row.choice.space, "-")
    before, after = (("-", "-"), ran) if kind.endswith("added") else (ran, ("-", "-"))
    where = f"{of_any_m(row.problem)}, m {row.first}–{row.last}"
    return [kind, where, *before, *after, "-", config_text(Task(row.problem, device, ran[0]), row.choice.config)]


def _ran(row: Row | None) -> tuple[str, str]:
    return ("-", "-") if row is None else (row.choices[0].space, microseconds(row.choices[0].time_ns))


def _shift(change: Change) -> str:
    """How the time changed; a dash where the two are not comparable."""
    before, after = change.before.choices[0], change.after.choices[0]
    return f"{after.time_ns / before.time_ns - 1:+.1%}" if terms(before) == terms(after) else "-"


def _change(change: Change) -> dict[str, object]:
    before, after = change.before.choices[0], change.after.choices[0]
    return {"problem": change.after.problem.name, "before": _choice(before), "after": _choice(after)}


def _row(row: Row) -> dict[str, object]:
    return {"problem": row.problem.name, "choice": _choice(row.choices[0])}


def _choice(choice: Choice) -> dict[str, object]:
    return {
        "space": choice.space,
        "config": dict(choice.config),
        "time_ns": choice.time_ns,
        "low_ns": choice.low_ns,
        "high_ns": choice.high_ns,
        "evidence": choice.evidence.value,
        "protocol": choice.protocol,
        "toolchain": choice.toolchain,
    }
