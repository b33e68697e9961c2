"""What became of a table's rows: which came, went, changed their winner, or take another time beyond the noise."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.tables.ranges import of_one_gemm
from gemmtune.engine.tables.ranking import faster
from gemmtune.engine.tables.table_file import require_device

__all__ = ["Change", "TableDiff", "diff_tables", "terms"]


@dataclass(frozen=True, slots=True)
class Change:
    """A row of both tables."""

    before: Row
    """The first table's."""
    after: Row
    """The second's."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Where two tables differ; each row stands in one place."""

    added: tuple[Row, ...]
    """Rows that only the second has."""
    gone: tuple[Row, ...]
    """Rows that only the first has."""
    winner: tuple[Change, ...]
    """Rows whose first choice is another config or space."""
    terms: tuple[Change, ...]
    """Rows of one winner whose times come of other evidence or another protocol, and are not comparable."""
    time: tuple[Change, ...]
    """Rows of one winner that takes another time, beyond the intervals of both."""
    ranges_added: tuple[RangeRow, ...] = ()
    """Ranges of m that only the second has: there, or with this choice."""
    ranges_gone: tuple[RangeRow, ...] = ()
    """Ranges that only the first has."""

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        rows = self.added or self.gone or self.winner or self.terms or self.time
        return not (rows or self.ranges_added or self.ranges_gone)


def diff_tables(before: Table, after: Table) -> TableDiff:
    """Compare two tables of one device and objective, row by row, in the order of the problems' names.

    Times differ where one is faster than the other, as `ranking.faster` has it.

    Raises:
        DeviceError: they are of two GPUs.
        TableError: they minimise two things.
    """
    require_device(after, before.device)
    if before.objective != after.objective:
        raise TableError(
            f"one table is of objective {before.objective}, the other of {after.objective}: compare tables of one"
        )
    old, new = ({row.problem: row for row in table.rows} for table in (before, after))
    both = [Change(row, new[problem]) for problem, row in old.items() if problem in new]
    before_ranges, after_ranges = ({_range_key(row): row for row in table.ranges} for table in (before, after))
    kinds = [(_kind(change.before.choices[0], change.after.choices[0]), change) for change in both]
    return TableDiff(
        added=tuple(row for problem, row in new.items() if problem not in old),
        gone=tuple(row for problem, row in old.items() if problem not in new),
        winner=tuple(change for kind, change in kinds if kind == "winner"),
        terms=tuple(change for kind, change in kinds if kind == "terms"),
        time=tuple(change for kind, change in kinds if kind == "time"),
        ranges_added=tuple(row for key, row in after_ranges.items() if key not in before_ranges),
        ranges_gone=tuple(row for key, row in before_ranges.items() if key not in after_ranges),
    )


def terms(choice: Choice) -> tuple[str, str]:
    """What two times must share to be compared: evidence and protocol."""
    return choice.evidence.value, choice.protocol


def _range_key(row: RangeRow) -> tuple[Problem, int, int, str, str]:
    """Where a range lies, and what runs there."""
    return of_one_gemm(row.problem), row.first, row.last, row.choice.space, row.choice.config.json


def _kind(before: Choice, after: Choice) -> str:
    """The place of a change, empty for none."""
    if (before.space, before.config) != (after.space, after.config):
        return "winner"
    if terms(before) != terms(after):
        return "terms"
    return "time" if faster(before, after) or faster(after, before) else ""
