"""Differences between two tables: rows, winners, and times beyond the noise; and the merge of several by evidence."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.tables.ranking import faster
from gemmtune.engine.tables.table_file import require_device

_R = TypeVar("_R", Row, RangeRow)
_RELIABLE = tuple(Evidence)  # the most reliable first


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
    batch_invariant: tuple[bool, bool] = (False, False)
    """Whether the first and the second table are batch-invariant."""
    generated: tuple[str, ...] = ()
    """Names of kernels between the products that have another config, or a row in one table alone."""

    @property
    def same(self) -> bool:
        """Whether there is no difference."""
        rows = self.added or self.gone or self.winner or self.terms or self.time or self.generated
        return not (rows or self.ranges_added or self.ranges_gone) and len({*self.batch_invariant}) == 1


@dataclass(frozen=True, slots=True)
class Conflict:
    """A problem, or ranges of m, for which two tables have other choices."""

    kept: Row | RangeRow
    """Row of the merged table; the first range of a GEMM for all of its ranges."""
    source: str
    """Name of the table that it is of."""
    other: Row | RangeRow
    """Row that was left out."""
    other_source: str
    """Name of the table that has the row left out."""
    reason: str
    """Evidence that the kept one has more of."""


def merge_tables(tables: Mapping[str, Table]) -> tuple[Table, tuple[Conflict, ...]]:
    """Return one table of the tables of several teams, and the conflicts between them, by their names.

    Of two rows for a problem, the one with more evidence is kept; of equal evidence, that of the first table. The
    ranges of one GEMM go together.

    Raises:
        DeviceError: the tables are for several GPUs.
        TableError: the tables minimise several objectives, or one of them is batch-invariant.
    """
    if any(table.batch_invariant for table in tables.values()):
        raise TableError("the rows of a batch-invariant table add in one order, and are merged with no others")
    merged, *others = tables.values()
    for table in others:
        diff_tables(merged, table)  # refuses what does not compare
    rows: dict[Workload, tuple[str, tuple[Row, ...]]] = {}
    ranges: dict[Workload, tuple[str, tuple[RangeRow, ...]]] = {}
    conflicts: list[Conflict] = []
    for name, table in tables.items():
        of_series: defaultdict[Workload, tuple[RangeRow, ...]] = defaultdict(tuple)
        for ranged in table.ranges:
            of_series[ranged.problem.series] += (ranged,)
        conflicts += _joined(rows, name, {row.problem: (row,) for row in table.rows})
        conflicts += _joined(ranges, name, of_series)
    found = sorted((row for _, kept in rows.values() for row in kept), key=lambda row: row.problem.name)
    spans = sorted((r for _, kept in ranges.values() for r in kept), key=lambda r: (repr(r.problem.series), r.first))
    newest = max(table.measured_at for table in tables.values())
    drivers = tuple(sorted({driver for table in tables.values() for driver in table.drivers}))
    for table in (*reversed(others), merged):
        merged = merged.with_generated(table.generated)
    merged = replace(merged, rows=tuple(found), ranges=tuple(spans), measured_at=newest, drivers=drivers)
    return merged, tuple(conflicts)


def _joined(
    kept: dict[Workload, tuple[str, tuple[_R, ...]]], name: str, new: Mapping[Workload, tuple[_R, ...]]
) -> list[Conflict]:
    """Put what has more evidence in the place of what is kept; return the conflicts."""
    conflicts = []
    for problem, rows in new.items():
        if problem not in kept:
            kept[problem] = name, rows
            continue
        old_name, old = kept[problem]
        before, now = _evidence(old), _evidence(rows)
        wins = tuple(now.values()) > tuple(before.values())
        if wins:
            kept[problem] = name, rows
        if _choices(old) != _choices(rows):
            more, less = (now, before) if wins else (before, now)
            first, second = (rows[0], name), (old[0], old_name)
            best, other = (first, second) if wins else (second, first)
            conflicts.append(Conflict(*best, *other, _reason(more, less)))
    return conflicts


def _evidence(rows: Sequence[Row | RangeRow]) -> dict[str, float]:
    """Return what speaks for rows, the weightiest first."""
    chosen = [row.choices[0] if isinstance(row, Row) else row.choice for row in rows]
    single = [row for row in rows if isinstance(row, Row)]
    ranges = [row for row in rows if isinstance(row, RangeRow)]
    return {
        "evidence": -max(_RELIABLE.index(choice.evidence) for choice in chosen),  # that of the least reliable
        "baseline": all(row.baseline is not None for row in single),
        "final": all(row.regret_bound is not None for row in single),
        "sizes": len({m for row in ranges for m, _ in (*row.tuned, *row.probed)}),
        "samples": sum(choice.samples for choice in chosen),
    }


def _reason(more: Mapping[str, float], less: Mapping[str, float]) -> str:
    name = next((name for name in more if more[name] != less[name]), "")
    if not name:
        return "equal evidence, and named first"
    if name == "evidence":
        return f"{_RELIABLE[int(-more[name])]}, not {_RELIABLE[int(-less[name])]}"
    if more[name] is True:
        return f"with a {name}, not without"
    return f"{int(more[name])} {name}, not {int(less[name])}"


def _choices(rows: Sequence[Row | RangeRow]) -> list[tuple[object, ...]]:
    return [_range_key(r) if isinstance(r, RangeRow) else (r.choices[0].space, r.choices[0].config) for r in rows]


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
        batch_invariant=(before.batch_invariant, after.batch_invariant),
        generated=_unequal(before, after),
    )


def _unequal(before: Table, after: Table) -> tuple[str, ...]:
    """Return the names of generated kernels that do not have one config in both tables."""
    old, new = ({row.source: row.choice.config for row in table.generated} for table in (before, after))
    rows = (row for row in (*before.generated, *after.generated) if old.get(row.source) != new.get(row.source))
    return tuple(sorted({row.source: row.name for row in rows}.values()))


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
