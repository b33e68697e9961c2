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


def with_earlier(table: Table, earlier: Table, tuned: Set[Workload]) -> tuple[Table, tuple[Row, ...]]:
    """Return the table with the rows and ranges of an earlier one that it lacks, and the rows that were kept.

    Kept rows stay as they are, whatever margin they were made with; the margin of the table is that of the new rows.
    Earlier rows of the problems that were `tuned` now are dropped, whether there is a new one or not.
    """
    kept = tuple(row for row in earlier.rows if row.problem not in tuned)
    gemms = {row.problem.series for row in table.ranges}
    ranges = (*table.ranges, *(row for row in earlier.ranges if row.problem.series not in gemms))
    rows = sorted((*table.rows, *kept), key=lambda row: row.problem.name)
    ordered = sorted(ranges, key=lambda row: (row.problem.series.name, row.first))
    newest = max(table.measured_at, earlier.measured_at if kept else "")
    drivers = tuple(sorted({*table.drivers, *(earlier.drivers if kept else ())}))
    return replace(table, rows=tuple(rows), ranges=tuple(ordered), measured_at=newest, drivers=drivers), kept
