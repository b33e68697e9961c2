"""The result of a campaign: its table, its findings, and the files it is saved as."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.api.output_folder import left_behind, make_folder, with_packages
from gemmtune.engine.api.reporting import REPORT_FILE, update_report
from gemmtune.engine.api.table import Table
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Result
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import ContractError, TableError, ToolchainMissing, UsageError
from gemmtune.engine.records.table import Choice, Row
from gemmtune.engine.records.table import Table as TableRecord
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.campaign import campaign_report
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.progress.run import Run, has_run, write_run
from gemmtune.engine.report.why import advice
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.dataframe import config_columns, dataframe
from gemmtune.engine.store.files import write_whole
from gemmtune.engine.tables.earlier import EarlierRow, with_earlier
from gemmtune.engine.tables.export import left_out_line
from gemmtune.engine.tables.table_file import write_table

if TYPE_CHECKING:
    from pandas import DataFrame

TABLE_FILE = "table.json"
"""Name of the table in a campaign's folder."""


@dataclass(slots=True)
class TuneResult:
    """A finished campaign: the table it ships, and what each search found.

    Example:
        >>> import gemmtune as gt
        >>> result = gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=16)
        >>> best = result.best("16x4096x4096:bf16:nt")
        >>> best.space, best.config["BLOCK_M"], best.evidence.value
        ('triton_mm', 16, 'replayed')
    """

    plan: Plan
    """The campaign that was run, with every default filled in."""
    device: Device
    """The GPU that the table is for."""
    campaign: Result
    """The findings of each search, the portfolio and the losses of ranges."""
    database: str
    """Path or URL of the database that holds every measurement."""
    run: Run | None = None
    """Record of the run, for the page."""
    earlier: tuple[EarlierRow, ...] = ()
    """Rows and ranges of the folder's earlier table that were kept, replaced or dropped; an equal row is left out."""
    is_cancelled: bool = False
    """Whether somebody cancelled the campaign: the table has what was done by then."""
    written: list[Path] = field(default_factory=list)
    """Files of the last `save`."""
    notes: list[str] = field(default_factory=list)
    """Files that the last `save` could not write, a line per consumer or page with the reason."""
    broken: list[str] = field(default_factory=list)
    """Names of those whose exporter is broken; the others refused the table."""

    @property
    def table(self) -> Table:
        """The table to ship."""
        return Table.of(self.campaign.table)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The table's rows, one per problem, sorted by the problem's name."""
        return self.campaign.table.rows

    def best(self, problem: str | Workload) -> Choice:
        """Return the kernel to run for a problem: the baseline unless another is faster beyond the noise.

        Raises:
            UsageError: the problem has no row; the message names those that have one.
        """
        choice = self.table.lookup(problem)
        if choice is None:
            tuned = ", ".join(row.problem.name for row in self.rows) or "none"
            raise UsageError(f"no row for {problem if isinstance(problem, str) else problem.name}; tuned: {tuned}")
        return choice

    @property
    def report(self) -> Report:
        """The report behind `summary`, as text and as JSON."""
        return campaign_report(self.plan, self.device, self.campaign, self.notes, self.written, self.earlier)

    def summary(self, width: int | None = None) -> str:
        """Return a line per task, what ships and which files were written, in at most `width` columns."""
        return self.report.to_text(width)

    def to_dataframe(self) -> DataFrame:
        """Return a pandas DataFrame with one line per searched task; scores in the objective's unit, ns for latency.

        Raises:
            ToolchainMissing: pandas is not installed.
        """
        return dataframe(
            {
                "problem": found.problem.name,
                "space": found.space,
                **(config_columns(found.config) if found.config else {}),
                "score": found.score,
                "baseline_score": found.baseline_score,
                "evaluations": found.evaluations,
                "failures": sum(found.failures.values()),
                "fraction_of_optimum": found.fraction_of_optimum,
            }
            for found in self.campaign.findings
        )

    def join(self, earlier: TableRecord | None, store: Database, *, keep: bool = True) -> None:
        """Join the table with an earlier one, see `with_earlier`; without `keep`, only say what it replaces."""
        if earlier is None:
            return
        measured = {found.problem for found in self.campaign.findings if found.evaluations}
        tuned = {*measured, *self.plan.held_out, *(row.problem for row in self.rows)}

        def ranked(problem: Workload, choice: Choice) -> bool:
            task, made_with = Task(problem, self.device, choice.space), Toolchain.parse(choice.toolchain)
            kernel = task, choice.protocol, choice.evidence, made_with, [choice.config.digest]
            is_known = choice.space in {*self.plan.spaces, problem.baseline_space} and bool(store.known(*kernel))
            return is_known or store.boards.withdrew(task, choice.config.digest)

        table, self.earlier = with_earlier(self.campaign.table, earlier, tuned, ranked, keep=keep)
        self.campaign = replace(self.campaign, table=table)

    def save(self, folder: str | os.PathLike[str], *, report: bool = True) -> list[Path]:
        """Write table.json, its exports for each consumer of the tuned spaces, report.html and summary.txt.

        Args:
            folder: created unless it exists.
            report: False to write no report.html, which takes a second or two.

        Returns:
            The paths of what was written.

        Raises:
            StoreError: the database cannot be read for the report.
            UsageError: the folder cannot be written.
        """
        if not report:
            return self.save_with(folder, None, report=False)
        with Database.open(self.database, read_only=True) as store:
            return self.save_with(folder, store)

    def save_with(self, folder: str | os.PathLike[str], store: Database | None, *, report: bool = True) -> list[Path]:
        """Save as `save` does, with the database that is open: a server may be away just when it is opened again."""
        out = Path(folder)
        make_folder(out)
        table, summary = out / TABLE_FILE, out / "summary.txt"
        shipped = write_table(table, self.campaign.table)
        exported, self.notes, self.broken = export_everywhere(Table.of(shipped), out)
        self.notes += [line for row in self.rows if (line := advice(self.device, row))]
        self.written = [table, *exported, summary]
        if self.run is not None and (self.run.evaluations or not has_run(out)):
            write_run(out, self.run)  # a repeated campaign evaluates nothing and leaves the record of the first run
        if report:
            try:
                self.written.append(update_report(self.table, out, out / REPORT_FILE, store))
            except ToolchainMissing as missing:
                self.notes.append(f"no {REPORT_FILE}: {missing}")
        write_whole(summary, f"{self.summary()}\n".encode())
        return self.written

    def __repr__(self) -> str:
        """Name the device and the number of rows; the database's URL may hold a password."""
        return f"TuneResult({self.device.sku}, rows={len(self.rows)})"


def export_everywhere(table: Table, out: Path, *, estimated: bool = False) -> tuple[list[Path], list[str], list[str]]:
    """Export to every consumer of the tuned spaces; with `estimated`, rows that were estimated, too.

    Returns:
        The files and packages, a line per consumer that refused the table, left out choices or has files of an earlier
        one, and the names of those whose exporter is broken.
    """
    written, refusals, broken = list[Path](), list[str](), list[str]()
    tuned = {choice.space for row in table.rows for choice in row.choices}
    kinds = {row.problem.kind for row in table.rows}
    for name in registry.names(Exporter):
        files: list[Path] = []
        try:
            exporter = registry.exporter(name)
            runs = not kinds or not kinds.isdisjoint(exporter.workloads)
            if runs and not exporter.on_request and (not exporter.spaces or not tuned.isdisjoint(exporter.spaces)):
                files = table.export(name, out, estimated=estimated)
                refusals += [line] if (line := left_out_line(name, table)) else []
        except (ContractError, TableError) as error:
            refusals.append(f"not exported to {name}: {error}")
            broken += [name] if isinstance(error, ContractError) else []
        written += files
        if others := left_behind(out / name, files):
            refusals.append(others)
    return with_packages(written), refusals, broken
