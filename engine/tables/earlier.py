"""Keep the rows of an earlier table that a new one lacks, or that are better; say what became of each."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeAlias

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, TableError, UsageError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.ranking import MIN_MARGIN, faster
from gemmtune.engine.tables.table_file import read_table, require_device

Ranges: TypeAlias = tuple[RangeRow, ...]
"""Ranges of one series, by size."""
Ranked: TypeAlias = Callable[[Workload, Choice], bool]
"""Function that says whether the new table ranked this kernel by a measurement, or the kernel's was withdrawn."""

_OTHER = "other problems"
_RELIABLE = tuple(Evidence)  # the most reliable first


class Fate(StrEnum):
    """Outcome for a row of an earlier table."""

    KEPT = "kept"
    """It is a row of the new table."""
    REPLACED = "replaced"
    """A new row stands in its place."""
    DROPPED = "dropped"
    """Nothing stands in its place."""


@dataclass(frozen=True, slots=True)
class EarlierRow:
    """A row or range of an earlier table, and what became of it."""

    before: Row | RangeRow
    """Row of the earlier table."""
    fate: Fate
    """Outcome for that row."""
    reason: str
    """Reason for people; without a new row, the problems that it holds for."""
    now: Row | RangeRow | None = None
    """New row of the problem, which does not ship if the earlier one is kept; None without one."""


def read_earlier(path: Path, device: Device, objective: str, *, batch_invariant: bool = False) -> Table | None:
    """Return the table in a file whose rows can be kept; None where there is no file.

    Raises:
        UsageError: the file is damaged, or a table of another device or objective; or one of it and the new table is
            batch-invariant, and the other is not.
    """
    if not path.exists():
        return None
    try:
        found = read_table(path)
        require_device(found, device)
        if found.objective != objective:
            raise TableError(f"{path}: a table of objective {found.objective}, not {objective}")
        require_mixing(path, found, batch_invariant=batch_invariant)
    except (TableError, DeviceError) as error:
        raise UsageError(f"{error}; name another folder with --out, or drop its rows with --replace") from None
    return found


def require_mixing(path: Path, found: Table, *, batch_invariant: bool) -> None:
    """Raise TableError where the table of a file or a new one is batch-invariant, and the other is not."""
    if found.batch_invariant is not batch_invariant:
        which = "batch-invariant, and the new one is not" if found.batch_invariant else "not batch-invariant"
        raise TableError(f"{path}: this table is {which}, and their rows do not mix")


def with_earlier(
    table: Table,
    earlier: Table,
    tuned: Set[Workload],
    ranked: Ranked = lambda problem, choice: False,
    *,
    keep: bool = True,
) -> tuple[Table, tuple[EarlierRow, ...]]:
    """Return the table joined with an earlier one of its device and objective, and each earlier row that it touches.

    - A row of a problem that was not `tuned` now stays as it is, whatever margin it was made with.
    - A row of a tuned problem without a new row is dropped: nothing works any more, or it is held out.
    - Of two rows of one problem one leads, see `_Judge.verdict`. It gets the other's best choice of each further space
      that compares with it and was not `ranked` now: a consumer that runs one space keeps its kernel.
    - The ranges of one series stay or go together: they share its sizes out among them.
    - Rows of a class that the user edited and tuned now are dropped.
    - In a batch-invariant table, rows of a series that was tuned now are dropped: its rows have one order of summation.

    Without `keep`, the table stays as it is.
    """
    sources = {problem.described_by for problem in tuned}
    codes = {code for code, _ in sources if code}
    names = {problem.name for problem in tuned}
    bound = {problem.bits_series for problem in tuned} if table.batch_invariant else set()

    def alone(row: Row | RangeRow, *, measured: bool) -> EarlierRow:
        code = row.problem.described_by
        if code[0] in codes and code not in sources:
            return EarlierRow(row, Fate.DROPPED, "a class before its edit")
        if measured:
            return EarlierRow(row, Fate.DROPPED, "problems that are held out, or that nothing works for now")
        return EarlierRow(row, Fate.KEPT if keep else Fate.DROPPED, _OTHER if keep else f"{_OTHER}, by --replace")

    rows = {row.problem.name: row for row in table.rows}
    of_bound = [row for row in earlier.rows if row.problem.bits_series in bound]
    why = "a batch-invariant series is tuned at all of its sizes together"
    fates = [EarlierRow(row, Fate.DROPPED, why) for row in of_bound if row.problem.name not in rows]
    earlier = replace(
        earlier,
        rows=tuple(row for row in earlier.rows if row.problem.bits_series not in bound),
        ranges=tuple(row for row in earlier.ranges if row.problem.bits_series not in bound),
    )
    judge = _Judge(table, earlier, ranked, keep=keep)
    for old in earlier.rows:
        name = old.problem.name
        if name in rows:
            rows[name], found = judge.joined(old, rows[name])
        else:
            found = [alone(old, measured=name in names)]
            rows |= {name: old} if found[0].fate is Fate.KEPT else {}
        fates += found
    ranges = _by_series(table.ranges)
    for series, olds in _by_series(earlier.ranges).items():
        if series in ranges:
            ranges[series], found = judge.joined_ranges(olds, ranges[series])
        else:
            found = [alone(old, measured=False) for old in olds]
            ranges[series] = tuple(old for old, fate in zip(olds, found, strict=True) if fate.fate is Fate.KEPT)
        fates += found
    ordered = sorted((row for of in ranges.values() for row in of), key=lambda r: (r.problem.series.name, r.first))
    merged = replace(table, rows=tuple(rows[name] for name in sorted(rows)), ranges=tuple(ordered))
    merged = replace(merged, generated=earlier.generated * keep).with_generated(table.generated)
    if merged != table:  # something is of the earlier table
        newest = max(table.measured_at, earlier.measured_at)
        merged = replace(merged, measured_at=newest, drivers=tuple(sorted({*table.drivers, *earlier.drivers})))
    return merged, tuple(fates)


class _Judge:
    """Says which of two rows of one problem leads."""

    def __init__(self, table: Table, earlier: Table, ranked: Ranked, *, keep: bool) -> None:
        self._margin, self._ranked, self._keep = table.margin, ranked, keep
        self._rows = [_rows_by_series(each) if earlier.ranges else {} for each in (earlier, table)]
        self._by_time = registry.objective(table.objective).by_time
        self._objective = table.objective

    def joined(self, old: Row, new: Row) -> tuple[Row, list[EarlierRow]]:
        """Return the row to ship, and the fate of the earlier one unless its choices stay as they are."""
        if old.choices == new.choices:
            return new, []
        leads, reason = self.verdict(old, new)
        lead, other = (old, new) if leads else (new, old)
        choices = lead.choices
        if self._keep and not self._differ(old, new):
            further = (c for space, c in _by_space(other).items() if space not in _by_space(lead))
            choices += tuple(c for c in further if leads or not self._ranked(old.problem, c))
        shipped = replace(lead, problem=new.problem, choices=choices)
        if shipped.choices == old.choices and not leads:
            return shipped, []
        if lost := [space for space in _by_space(old) if space not in _by_space(shipped)]:
            reason += f"; the row has no choice of {', '.join(lost)} any more"
        return shipped, [EarlierRow(old, Fate.KEPT if leads else Fate.REPLACED, reason, new)]

    def joined_ranges(self, olds: Sequence[RangeRow], news: Sequence[RangeRow]) -> tuple[Ranges, list[EarlierRow]]:
        """Return the ranges of one series to ship, and the fates of the earlier ones unless they are equal.

        The earlier ones stay if they serve every size of the new ones and lead at one at least, while the new ones lead
        at none. Sizes count where the times of both choices are known.
        """
        if tuple(olds) == tuple(news):
            return tuple(news), []
        old_rows, new_rows = (rows.get(olds[0].problem.series, {}) for rows in self._rows)
        sizes = {*old_rows, *new_rows, *(row.problem for row in (*olds, *news))}
        pairs = [(_served(old_rows, olds, size), _served(new_rows, news, size)) for size in sizes]
        known = [(old, new) for old, new in pairs if old is not None and new is not None]
        wider = olds[0].first <= news[0].first and news[-1].last <= olds[-1].last
        newer = any(self._obstacle(old, new) or _leads(new, old) for old, new in known)
        leads = wider and not newer and any(_leads(old, new) for old, new in known)
        reason = "faster where both were measured" if leads else "ranges of one series go together"
        fate = Fate.KEPT if leads else Fate.REPLACED
        now = {old: next((new for new in news if new.first <= old.problem.size <= new.last), None) for old in olds}
        return tuple(olds if leads else news), [EarlierRow(old, fate, reason, now[old]) for old in olds]

    def verdict(self, old: Row, new: Row) -> tuple[bool, str]:
        """Return whether the earlier row leads, and why.

        It leads if its evidence is more reliable. Of equal terms, it leads if its kernel is faster beyond the noise and
        MIN_MARGIN, ships by the new margin, and was not ranked now: the new table gave a kernel that it ranked its
        place, so that a lucky time yields once its kernel is measured again. Clocks and boards differ from one day to
        another: where both rows have a baseline, they compare as multiples of its time.
        """
        reason = self._obstacle(old, new)
        if self._keep and _RELIABLE.index(old.choices[0].evidence) < _RELIABLE.index(new.choices[0].evidence):
            return old.problem == new.problem, reason
        if reason:
            return False, reason
        lead = None if old.baseline is None else old.baseline.time_ns / old.choices[0].time_ns - 1
        if lead is not None and lead < self._margin and old.choices[0] != old.baseline:
            return False, f"its lead of {lead:.1%} is below the margin of {self._margin:.1%}"
        if _leads(old, new):
            return True, "it is faster" if lead is None else f"its lead is {lead:.1%}"
        return False, "faster now" if _leads(new, old) else "no difference beyond the noise"

    def _obstacle(self, old: Row, new: Row) -> str:
        """Return why the new row leads whatever the times; empty if they decide."""
        if not self._keep:
            return "by --replace"
        if self._differ(old, new):
            return self._differ(old, new)
        return "its kernel was ranked now, or its time withdrawn" if self._ranked(old.problem, old.choices[0]) else ""

    def _differ(self, old: Row, new: Row) -> str:
        """Return in which terms the first choices of two rows differ, so that their times do not compare."""
        one, other = old.choices[0], new.choices[0]
        if old.problem != new.problem:
            return "its operands were others"
        if one.evidence is not other.evidence:
            return f"{one.evidence}, now {other.evidence}"
        if one.protocol != other.protocol:
            return f"protocol {one.protocol}, now {other.protocol}"
        if not self._by_time:
            return f"the table has no scores of objective {self._objective}"
        before, now = _versions(old), _versions(new)
        changed = [package for package in before if before[package] != now.get(package, before[package])]
        return ", ".join(f"{package} {before[package]}, now {now[package]}" for package in changed)


def _by_series(ranges: Iterable[RangeRow]) -> dict[Workload, Ranges]:
    found: defaultdict[Workload, Ranges] = defaultdict(tuple)
    for row in ranges:
        found[row.problem.series] += (row,)
    return dict(found)


def _rows_by_series(table: Table) -> dict[Workload, dict[Workload, Row]]:
    found: defaultdict[Workload, dict[Workload, Row]] = defaultdict(dict)
    for row in table.rows:
        found[row.problem.series][row.problem] = row
    return dict(found)


def _by_space(row: Row) -> dict[str, Choice]:
    """Return the best choice of each space that a row has."""
    found: dict[str, Choice] = {}
    for choice in row.choices:
        found.setdefault(choice.space, choice)
    return found


def _served(rows: Mapping[Workload, Row], ranges: Sequence[RangeRow], problem: Workload) -> Row | None:
    """Return the choice of the range that serves a problem, as a row; None where its time there is not known."""
    serving = next((row for row in ranges if row.first <= problem.size <= row.last), None)
    if serving is None:
        return None
    row, kernel = rows.get(problem), (serving.choice.space, serving.choice.config)
    timed = [serving.choice] if serving.problem == problem else row.choices if row else ()
    choices = tuple(choice for choice in timed if (choice.space, choice.config) == kernel)
    return Row(problem, choices, row.baseline if row else None, 0.0, ()) if choices else None


def _versions(row: Row) -> dict[str, str]:
    """Return the versions of packages behind a row's first choice and its baseline."""
    made_with = (choice.toolchain for choice in (row.baseline, row.choices[0]) if choice is not None)
    return {package: version for text in made_with for package, version in Toolchain.parse(text).versions}


def _leads(one: Row, other: Row) -> bool:
    """Return whether the first choice of `one` is faster beyond the noise and MIN_MARGIN, see `_Judge.verdict`."""
    scale = other.baseline.time_ns / one.baseline.time_ns if one.baseline and other.baseline else 1.0
    choice, rival = one.choices[0], other.choices[0]
    times = {name: getattr(choice, name) * scale for name in ("time_ns", "low_ns", "high_ns")}
    scaled = replace(choice, **times)
    return faster(scaled, rival) and rival.time_ns >= scaled.time_ns * (1 + MIN_MARGIN)
