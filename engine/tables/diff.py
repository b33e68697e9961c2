"""Differences between two tables: rows added or gone, other winners, and times that differ beyond the noise."""

from dataclasses import dataclass

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.tables.ranking import faster
from gemmtune.engine.tables.table_file import require_device


@dataclass(frozen=True, slots=True)
class Change:
    """One problem's rows in both tables."""

    before: Row
    """Row of the first table."""
    after: Row
    """Row of the second table."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Differences between two tables; each row stands in one field at most."""

    added: tuple[Row, ...]
    """Rows that only the second table has."""
    gone: tuple[Row, ...]
    """Rows that only the first table has."""
    winner: tuple[Change, ...]
    """Rows whose first choice is another config or space."""
    terms: tuple[Change, ...]
    """Rows of one winner whose times have other evidence or another protocol, and are not comparable."""
    time: tuple[Change, ...]
    """Rows of one winner whose times differ beyond the intervals of both."""
    ranges_added: tuple[RangeRow, ...] = ()
    """Ranges of m that only the second table has, with the same ends and choice."""
    ranges_gone: tuple[RangeRow, ...] = ()
    """Ranges of m that only the first table has."""

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        rows = self.added or self.gone or self.winner or self.terms or self.time
        return not (rows or self.ranges_added or self.ranges_gone)


def diff_tables(before: Table, after: Table) -> TableDiff:
    """Compare two tables of one device and objective, row by row, in the order of the problems' names.

    Two times differ where one choice is faster than the other by `ranking.faster`.

    Raises:
        DeviceError: the tables are for two GPUs.
        TableError: the tables minimise two objectives.
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
    """Return evidence and protocol, which two times must share to be compared."""
    return choice.evidence.value, choice.protocol


def _range_key(row: RangeRow) -> tuple[object, ...]:
    """Return the GEMM, ends and choice of a range."""
    return row.problem.series, row.first, row.last, row.choice.space, row.choice.config


def _kind(before: Choice, after: Choice) -> str:
    """Return the field of TableDiff that a change belongs to; empty for no change."""
    if (before.space, before.config) != (after.space, after.config):
        return "winner"
    if terms(before) != terms(after):
        return "terms"
    return "time" if faster(before, after) or faster(after, before) else ""
