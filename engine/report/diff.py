"""Report of `gemmtune diff`: the rows in which two tables differ."""

from __future__ import annotations

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.report.layout import Grid, Report, choice_text, count, json_fields, microseconds
from gemmtune.engine.report.ranges import range_row_json, range_text
from gemmtune.engine.tables.diff import Change, TableDiff, terms

__all__ = ["diff_report"]

_HEADERS = ("change", "problem", "ran", "µs", "runs", "µs now", "shift", "config")
_LEFT = ("change", "problem", "ran", "runs", "config")
_NOTHING = ("-", "-")


def diff_report(found: TableDiff, device: Device) -> Report:
    """Report each row that differs between two tables of `device`: what ran, what runs, and its config."""
    rows = {"added": found.added, "gone": found.gone}
    changes = {"winner": found.winner, "terms": found.terms, "time": found.time}
    ranges = {"ranges_added": found.ranges_added, "ranges_gone": found.ranges_gone}
    lines = [
        *(_row("added", row, _NOTHING, _ran(row), device) for row in found.added),
        *(_row("gone", row, _ran(row), _NOTHING, device) for row in found.gone),
        *(
            _row(kind, c.after, _ran(c.before), _ran(c.after), device, _shift(c))
            for kind, of in changes.items()
            for c in of
        ),
        *(_range("range added", row, _NOTHING, (row.choice.space, "-"), device) for row in found.ranges_added),
        *(_range("range gone", row, (row.choice.space, "-"), _NOTHING, device) for row in found.ranges_gone),
    ]
    record = {
        "same": found.same,
        **{
            name: [{"problem": row.problem.name, "choice": _choice(row.choices[0])} for row in of]
            for name, of in rows.items()
        },
        **{name: [_change(change) for change in of] for name, of in changes.items()},
        **{name: [range_row_json(row) for row in of] for name, of in ranges.items()},
    }
    if not lines:
        return Report(record, ["no difference"])
    return Report(record, [count(len(lines), "difference"), Grid.of_rows(_HEADERS, lines, _LEFT)])


def _row(
    kind: str, row: Row, before: tuple[str, str], after: tuple[str, str], device: Device, shift: str = "-"
) -> list[str]:
    return [kind, row.problem.name, *before, *after, shift, choice_text(device, row.problem, row.choices[0])]


def _range(kind: str, row: RangeRow, before: tuple[str, str], after: tuple[str, str], device: Device) -> list[str]:
    return [kind, range_text(row), *before, *after, "-", choice_text(device, row.problem, row.choice)]


def _ran(row: Row) -> tuple[str, str]:
    return row.choices[0].space, microseconds(row.choices[0].time_ns)


def _shift(change: Change) -> str:
    """Return the change of the time; a dash where the two times are not comparable."""
    before, after = change.before.choices[0], change.after.choices[0]
    return f"{after.time_ns / before.time_ns - 1:+.1%}" if terms(before) == terms(after) else "-"


def _change(change: Change) -> dict[str, object]:
    before, after = change.before.choices[0], change.after.choices[0]
    return {"problem": change.after.problem.name, "before": _choice(before), "after": _choice(after)}


def _choice(choice: Choice) -> dict[str, object]:
    times = ("time_ns", "low_ns", "high_ns")
    return json_fields(choice, "space", "config", *times, "evidence", "protocol", "toolchain")
