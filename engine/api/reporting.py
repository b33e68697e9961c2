"""Reports of a table, a folder or a database as HTML pages, and tables of everything that a database knows."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from gemmtune.engine.api.table import Table, read_table
from gemmtune.engine.campaign.known_table import known_table
from gemmtune.engine.campaign.plan import OPTIONS, Plan
from gemmtune.engine.consumers.inductor.bench.model_bench import ModelBench
from gemmtune.engine.consumers.inductor.report.bench_file import read_benches
from gemmtune.engine.io.paths import FileKind, find, kind_of_file
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.errors import DeviceError, TableError, UsageError
from gemmtune.engine.records.table import Table as TableRecord
from gemmtune.engine.report.campaign_record import CampaignRecord, gather
from gemmtune.engine.report.progress.run import read_run
from gemmtune.engine.report.tables import diff_report
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.tables.diff import Conflict, merge_tables
from gemmtune.engine.tables.earlier import require_mixing
from gemmtune.engine.tables.table_file import require_device, table_sha256

REPORT_FILE = "report.html"
"""Name of a campaign's page in its folder."""

_HEAD_BYTES = 2048  # the part of a page that names its sources


def report(
    path: str | os.PathLike[str], out: str | os.PathLike[str] | None = None, *, device: str | None = None
) -> Path:
    """Write the page of a table, of a campaign's folder, or of everything in a database; return the file.

    Args:
        path: a table.json, whose folder may hold measurements.db and run.json; such a folder; or a database.
        out: the file to write; by default report.html beside what it reports, or here for a database on a server.
        device: SKU of the GPU to report of a database that has several.

    Raises:
        StoreError: the database cannot be read.
        TableError: the table cannot be read.
        ToolchainMissing: matplotlib or jinja2 is not installed.
        UsageError: `path` holds neither a table nor measurements, or `out` cannot be written.
    """
    given = find(path, FileKind.TABLE, FileKind.DATABASE)
    folder = Path() if "://" in given else Path(given).parent
    target = folder / REPORT_FILE if out is None else Path(out)
    if "://" not in given and (given.endswith(".json") or kind_of_file(Path(given)) is FileKind.TABLE):
        table, measured = read_table(given), folder / "measurements.db"
        if not measured.exists():
            return _write_campaign(table, folder, target, None)
        with Database.open(measured, read_only=True) as database:
            return _write_campaign(table, folder, target, database)
    with Database.open(given, read_only=True) as database:
        table = table_of_database(database, device=device)
        return _write(gather(table, registry.objective(table.objective), database), target)


def update_report(table: TableRecord, folder: Path, target: Path, database: Database | None) -> Path:
    """Write the page of a table with its run and measurements, unless the file shows these already; return the file.

    Args:
        table: the table to report.
        folder: folder that may hold the record of the run.
        target: file to write.
        database: measurements behind the table; None leaves the page without them.

    Raises:
        StoreError: the database cannot be read.
        ToolchainMissing: the page is to be drawn, and matplotlib or jinja2 is not installed.
        UsageError: the file cannot be written.
    """
    return (
        target
        if _shows(target, _sources(table, folder, database))
        else _write_campaign(table, folder, target, database)
    )


def table_of_database(
    database: Database, *, objective: str = "latency", margin: float = Plan.margin, device: str | None = None
) -> Table:
    """Return the table of every problem that a database has measured.

    Raises:
        StoreError: the database cannot be read.
        UsageError: `margin` is no fraction, no measurement is of `device`, the database has several devices and none is
            named, or its replays were recorded with another cache state than the objective's.
    """
    OPTIONS["margin"].checked(margin)
    return Table.of(known_table(database, registry.objective(objective), objective, margin=margin, device=device))


@dataclass(frozen=True, slots=True)
class Joined:
    """Tables that several sources become: one per GPU."""

    tables: tuple[Table, ...]
    """Table of each GPU, in the order of the sources."""
    folder: Path | None
    """Folder to write to where none is named: that of the one source, or of the first table as it is."""
    conflicts: tuple[Conflict, ...] | None
    """Rows for which sources of one new table had other choices; None of tables as they are in files."""


def tables_of(sources: Sequence[str], *, objective: str, margin: float, device: str | None) -> Joined:
    """Read tables and databases, and join those of one GPU.

    Args:
        sources: files, folders, and URLs of databases.
        objective: objective of a database's table.
        margin: margin of a database's table.
        device: SKU of the GPU to take of a database, and to require of a table.

    Raises:
        DeviceError: a table is for another GPU than `device`.
        StoreError, TableError: a source cannot be read, or tables of one GPU minimise several objectives.
        UsageError: a new table would be of several GPUs; see also `table_of_database`.
    """
    found = {source: find(source, FileKind.TABLE, FileKind.DATABASE) for source in dict.fromkeys(sources)}
    by_gpu: dict[str, dict[str, TableRecord]] = {}
    has_database = False
    for source, path in found.items():
        if "://" in path or kind_of_file(Path(path)) is FileKind.DATABASE:
            has_database = True
            with Database.open(path, read_only=True) as database:
                table = table_of_database(database, objective=objective, margin=margin, device=device)
        else:
            table = read_table(path)
            if device is not None:
                table.require_device(catalogue.device(device))
        by_gpu.setdefault(table.device.name, {})[source] = table
    is_new = has_database or len(by_gpu) < len(found) or (len(by_gpu) == 1 < len(sources))  # one named twice, too
    if is_new and len(by_gpu) > 1:
        raise UsageError(f"these are for {' and '.join(by_gpu)}: make one table per GPU, and export those together")
    first = next(iter(found.values()))
    folder = None if "://" in first or (is_new and len(found) > 1) else Path(first).parent
    as_read = tuple(Table.of(table) for of in by_gpu.values() for table in of.values())
    if len(by_gpu) == len(found):
        return Joined(as_read, folder, () if is_new else None)
    merged, conflicts = merge_tables(next(iter(by_gpu.values())))
    return Joined((Table.of(merged),), folder, conflicts)


def over_earlier(path: Path, table: Table) -> tuple[Table, str]:
    """Return a table with the rows of generated kernels that only the file it will replace has, and what differs.

    The text has the rows in which both tables differ; it is empty for none, or no file.

    Raises:
        UsageError: the file's table is of another GPU or objective, or only one of both tables is batch-invariant.
    """
    if not path.exists():
        return table, ""
    try:
        earlier = read_table(path)
    except TableError as error:
        return table, f"gemmtune: replaces an earlier table: {error}"
    try:
        require_device(earlier, table.device)
        require_mixing(path, earlier, batch_invariant=table.batch_invariant)
        kept = replace(table, generated=earlier.generated).with_generated(table.generated)
        found = earlier.diff(kept)
    except DeviceError as error:
        raise UsageError(f"{path}: {error}, or name another folder with --out") from None
    except TableError as error:
        raise UsageError(f"{error}; name another folder with --out") from None
    return kept, "" if found.same else f"gemmtune: replaces {path}: {diff_report(found, table.device).to_text()}"


def _write_campaign(table: TableRecord, folder: Path, target: Path, database: Database | None) -> Path:
    objective = registry.objective(table.objective)
    record = gather(table, objective, database, read_run(folder))
    return _write(record, target, _sources(table, folder, database), read_benches(folder))


def _sources(table: TableRecord, folder: Path, database: Database | None) -> str:
    """Return a hash of what a page is made from; measurements are only ever added, so their number tells them."""
    counts = (len(database), database.number_of_finals()) if database else None
    facts = (version("gemmtune"), table_sha256(table), read_run(folder), counts, read_benches(folder))
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _shows(target: Path, sources: str) -> bool:
    try:
        with target.open("rb") as file:
            return sources.encode() in file.read(_HEAD_BYTES)
    except OSError:
        return False


def _write(record: CampaignRecord, target: Path, sources: str = "", benches: Sequence[ModelBench] = ()) -> Path:
    from gemmtune.engine.consumers.inductor.report.model_section import models
    from gemmtune.engine.report.html.campaign_page import campaign_html  # matplotlib takes a while to import

    write_whole(target, campaign_html(record, sources, models(benches)).encode())
    return target
