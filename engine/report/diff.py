"""Report of `gemmtune diff`: the rows in which two tables differ."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.table import Choice, RangeRow, Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, json_fields, microseconds, table_text
from gemmtune.engine.report.ranges import range_row_json, range_text
from gemmtune.engine.tables.diff import Change, TableDiff, terms

__all__ = ["DiffReport"]

_HEADERS = ("change", "problem", "ran", "µs", "runs", "µs now", "shift", "config")
_LEFT = ("change", "problem", "ran", "runs", "config")


@dataclass(frozen=True, slots=True)
class DiffReport:
    """Differences between two tables of one device."""

    found: TableDiff
    """Rows that differ."""
    device: Device
    """GPU of both tables."""

    def to_text(self, width: int | None = None) -> str:
        """Return a line per row that differs: what ran before, what runs now, and its config."""
        found = self.found
        lines = [
            *(self._row("added", None, row) for row in found.added),
            *(self._row("gone", row, None) for row in found.gone),
            *(self._row("winner", c.before, c.after, _shift(c)) for c in found.winner),
            *(self._row("terms", c.before, c.after) for c in found.terms),
            *(self._row("time", c.before, c.after, _shift(c)) for c in found.time),
            *(self._range("range added", row, ("-", "-"), (row.choice.space, "-")) for row in found.ranges_added),
            *(self._range("range gone", row, (row.choice.space, "-"), ("-", "-")) for row in found.ranges_gone),
        ]
        if not lines:
            return "no difference"
        return f"{count(len(lines), 'difference')}\n\n{table_text(_HEADERS, lines, _LEFT, width)}"

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        found = self.found
        rows = {"added": found.added, "gone": found.gone}
        changes = {"winner": found.winner, "terms": found.terms, "time": found.time}
        ranges = {"ranges_added": found.ranges_added, "ranges_gone": found.ranges_gone}
        return {
            "same": found.same,
            **{
                name: [{"problem": row.problem.name, "choice": _choice(row.choices[0])} for row in of]
                for name, of in rows.items()
            },
            **{name: [_change(change) for change in of] for name, of in changes.items()},
            **{name: [range_row_json(row) for row in of] for name, of in ranges.items()},
        }

    def _row(self, kind: str, before: Row | None, after: Row | None, shift: str = "-") -> list[str]:
        row = after or before
        assert row is not None, f"{kind} without a row"
        first = row.choices[0]
        config = config_text(Task(row.problem, self.device, first.space), first.config)
        return [kind, row.problem.name, *_ran(before), *_ran(after), shift, config]

    def _range(self, kind: str, row: RangeRow, before: tuple[str, str], after: tuple[str, str]) -> list[str]:
        config = config_text(Task(row.problem, self.device, row.choice.space), row.choice.config)
        return [kind, range_text(row), *before, *after, "-", config]


def _ran(row: Row | None) -> tuple[str, str]:
    return ("-", "-") if row is None else (row.choices[0].space, microseconds(row.choices[0].time_ns))


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
