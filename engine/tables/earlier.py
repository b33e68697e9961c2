"""Keep the rows of an earlier table for problems that a new one does not have."""

from collections.abc import Set
from dataclasses import replace
from pathlib import Path

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, TableError, UsageError
from gemmtune.engine.records.table import Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.tables.table_file import read_table, require_device

__all__ = ["read_earlier", "with_earlier"]


def read_earlier(path: Path, device: Device, objective: str) -> Table | None:
    """Return the table in a file whose rows can be kept; None where there is no file.

    Raises:
        UsageError: the file is damaged, or a table of another device or objective.
    """
    if not path.exists():
        return None
    try:
        found = read_table(path)
        require_device(found, device)
        if found.objective != objective:
            raise TableError(f"{path}: a table of objective {found.objective}, not {objective}")
    except (TableError, DeviceError) as error:
        raise UsageError(f"{error}; name another folder with --out, or drop its rows with --replace") from None
    return found


def with_earlier(table: Table, earlier: Table, tuned: Set[Workload]) -> tuple[Table, tuple[Row, ...], tuple[Row, ...]]:
    """Return the table with the rows and ranges of an earlier one that it lacks, the rows kept, and those outdated.

    Kept rows stay as they are, whatever margin they were made with; the margin of the table is that of the new rows.
    Earlier rows of the problems that were `tuned` now are dropped, also where nothing works any more. Outdated rows are
    dropped, too: the user edited the code that describes them, and tuned it now.
    """
    sources = {problem.described_by for problem in tuned}
    codes = {code for code, _ in sources if code}

    def outdated(problem: Workload) -> bool:
        return problem.described_by[0] in codes and problem.described_by not in sources

    names = {problem.name for problem in tuned}
    others = [row for row in earlier.rows if row.problem.name not in names]
    dropped = tuple(row for row in others if outdated(row.problem))
    kept = tuple(row for row in others if not outdated(row.problem))
    gemms = {row.problem.series for row in table.ranges}
    old = (row for row in earlier.ranges if row.problem.series not in gemms and not outdated(row.problem))
    ranges = (*table.ranges, *old)
    rows = sorted((*table.rows, *kept), key=lambda row: row.problem.name)
    ordered = sorted(ranges, key=lambda row: (row.problem.series.name, row.first))
    newest = max(table.measured_at, earlier.measured_at if kept else "")
    drivers = tuple(sorted({*table.drivers, *(earlier.drivers if kept else ())}))
    merged = replace(table, rows=tuple(rows), ranges=tuple(ordered), measured_at=newest, drivers=drivers)
    return merged, kept, dropped
