"""A table measured again, after an upgrade or on another board."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from gemmtune.engine.api.landscapes import LandscapeSource, sources_of
from gemmtune.engine.api.output_folder import folder_of
from gemmtune.engine.api.table import Table, read_table
from gemmtune.engine.api.tuning import database_url
from gemmtune.engine.campaign.plan import OPTIONS
from gemmtune.engine.campaign.verify import Verified, in_doubt, open_executor, refreshed
from gemmtune.engine.campaign.verify import verify as measure_again
from gemmtune.engine.execution.hosts import LOCAL
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.tables import verify_report
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.toolchain.board_facts import driver_version


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """A verified table: which rows and ranges hold, and the table repaired."""

    record: Verified
    """The check of every row and range, in the table's order."""
    written: tuple[Path, ...] = ()
    """Files below `out`: the repaired table, and the page where it could be drawn."""

    @property
    def holds(self) -> bool:
        """Whether every row and every range holds."""
        return self.record.holds

    @property
    def table(self) -> Table:
        """The table with the new times; rows that do not hold are replaced by their best contender."""
        return Table.of(self.record.repaired)

    @property
    def report(self) -> Report:
        """The report behind `summary`, as text and as JSON."""
        return verify_report(self.record)

    def summary(self, width: int | None = None) -> str:
        """Return a line per row and the number of rows that hold, in at most `width` columns."""
        return self.report.to_text(width)


@checks_arguments
def verify(
    table: Table | str | os.PathLike[str],
    *,
    margin: float | None = None,
    backend: LandscapeSource | Sequence[LandscapeSource] = "auto",
    fleet: str = LOCAL,
    ray_address: str | None = None,
    builders: int | None = None,
    callbacks: Sequence[Callback] = (),
    database: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    refresh: bool = False,
) -> VerifyResult:
    """Measure the contenders of every row again.

    A row holds if its choice works and is at most 2 % slower than the best of its contenders.

    Args:
        table: a table or its file.
        margin: lead over the vendor library that a row needs to ship another kernel, as a fraction; by default the
            table's.
        backend: "auto" for the fleet's GPUs of the table's model; landscapes or their files to answer instead.
        fleet: where to build and measure: local, ray, or ray://HOST:PORT.
        ray_address: cluster that fleet="ray" stands for; by default one that runs here, else a new one.
        builders: builder processes; by default one per core, less one.
        callbacks: followers of the measurements.
        database: file or URL of the measurements; those that it holds are not made again. By default measurements.db
            in `out`, which is renamed at the end, so that a verification that was stopped goes on and the next one
            measures again; else in a new temporary folder.
        out: folder for the repaired table.json and report.html; by default nothing is written but the database. Without
            matplotlib or jinja2 there is no page, and a notice says what to install.
        refresh: measure only the rows that were made with other versions than those here, of the driver and of the
            packages that build the kernel; the others stay in the table as they are.

    Raises:
        DeviceError: the hosts have no GPU, or none of the table's model.
        TableError: the table's file cannot be read.
        LandscapeError: the landscapes cannot be read.
        UsageError: `margin` is no fraction, or `out` cannot be written.

    Example:
        >>> import gemmtune as gt
        >>> recorded = gt.landscapes("h200")
        >>> table = gt.tune("16x4096x4096:bf16:nt", backend=recorded, budget=8).table
        >>> gt.verify(table, backend=recorded).holds
        True
    """
    content = table if isinstance(table, Table) else read_table(table)
    margin = content.margin if margin is None else OPTIONS["margin"].checked(margin)
    recorded, _ = sources_of(backend)
    executor = open_executor(
        content,
        landscapes=recorded,
        builders=builders,
        cluster=fleet,
        ray_address=ray_address,
        notify=partial(notify, callbacks),
    )
    folder = None if out is None else folder_of(out)
    url = database_url(database, folder)
    with closing(executor), Database.open(url) as store:
        part = (
            in_doubt(content, executor, driver_version() if fleet == LOCAL and not recorded else "")
            if refresh
            else content
        )
        found = measure_again(part, margin, executor, store, callbacks)
        result = VerifyResult(replace(found, repaired=refreshed(content, found.repaired, part)) if refresh else found)
    if database is None:
        Path(url).rename(Path(url).with_name(f"measured-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}.db"))
    if folder is not None:
        result.table.save(folder / "table.json")
        result = replace(result, written=(folder / "table.json",))
        try:
            from gemmtune.engine.report.html.change_pages import verify_html  # matplotlib takes a while to import
        except ToolchainMissing as missing:
            notify(callbacks, f"no report.html: {missing}")
        else:
            write_whole(folder / "report.html", verify_html(result.record).encode())
            result = replace(result, written=(*result.written, folder / "report.html"))
    return result
