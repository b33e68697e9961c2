"""The table as a user holds it: read, looked up, exported, compared and saved."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from gemmtune.engine.api.code.forms import code_of
from gemmtune.engine.api.output_folder import refuse_loss, write_all
from gemmtune.engine.io.arguments import checks_arguments
from gemmtune.engine.io.paths import FileKind, find
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.table import Table as TableRecord
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.kinds import measured_as, parse_workload
from gemmtune.engine.seams.plugin_class import adopted
from gemmtune.engine.store.dataframe import config_columns, dataframe
from gemmtune.engine.tables import table_file
from gemmtune.engine.tables.diff import TableDiff, diff_tables
from gemmtune.engine.tables.export import export_bundle

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(frozen=True, slots=True)
class Table(TableRecord):
    """The best configs of one GPU: a row per problem, with ranked choices and their evidence.

    Example:
        >>> import gemmtune as gt
        >>> table = gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=16).table
        >>> choice = table.lookup("16x4096x4096:bf16:nt")
        >>> choice.space, choice.config["BLOCK_M"], choice.evidence.value
        ('triton_mm', 16, 'replayed')
        >>> table.lookup("17x4096x4096:bf16:nt") is None
        True
        >>> paths = table.export("inductor", "out")
    """

    @classmethod
    def of(cls, record: TableRecord) -> Table:
        """Return the table of a record."""
        return cls(**{field.name: getattr(record, field.name) for field in fields(TableRecord)})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table's file, whole or not at all; equal tables give equal bytes.

        Raises:
            UsageError: the folder is missing or not writable; an earlier file stays as it was.
        """
        table_file.write_table(Path(path), self)

    def lookup(self, problem: str | Workload) -> Choice | None:
        """Return the kernel to run for a problem: of its own row, else of the range of m that covers it.

        Raises:
            ProblemError: the text is not a problem.
        """
        wanted = parse_workload(problem) if isinstance(problem, str) else problem
        rows = {row.problem: row for row in self.rows}
        if named := next((each for each in measured_as(wanted) if each in rows), None):
            return rows[named].choices[0]
        series = wanted.series
        covering = (row for row in self.ranges if row.first <= wanted.size <= row.last)
        return next((row.choice for row in covering if row.problem.series == series), None)

    def code(self, problem: str, form: str = "triton", source: str = "TABLE") -> str:
        """Return the kernel that the table runs for a problem as text, built for its GPU, which need not be here.

        Args:
            problem: text of the problem. Of an own kernel, triton:FILE.py:CLASS:SIZE=N names the file, too.
            form: triton for a program that launches and checks the kernel, ptx, sass, ncu for the commands that
                profile it, or config for the line to paste.
            source: path of the table, for the commands of ncu.

        Raises:
            UsageError: the table has no such row, its kernel has no such form, or it cannot be built here.
            ToolchainMissing: a package or tool that it needs is not installed.
        """
        return code_of(self, self.lookup, problem, form, source)

    def export(
        self,
        consumer: str | type[Exporter],
        folder: str | os.PathLike[str],
        *,
        estimated: bool = False,
        beside: Sequence[Table] = (),
    ) -> list[Path]:
        """Write the files that a consumer loads to `folder`/`consumer`; return their paths.

        Args:
            consumer: an exporter's name, for example "inductor" or "cute", or its class, which goes by its own name.
            folder: created unless it exists.
            estimated: export rows whose first choice was estimated and not timed.
            beside: tables of other GPUs for the same folder; a loader picks the table of its GPU.

        Raises:
            DeviceError: two tables are for one GPU.
            UnknownPlugin: no exporter has that name.
            TableError: the consumer cannot be given this table, or it has estimated rows and `estimated` is False, or
                the folder has the table of a GPU that is not among these.
            UsageError: the folder cannot be written.
        """
        consumer = adopted(Exporter, consumer)
        files = export_bundle(registry.exporter(consumer), [self, *beside], estimated=estimated)
        refuse_loss(files, path := Path(folder) / consumer)
        return write_all(files, path)

    def diff(self, other: Table) -> TableDiff:
        """Return the rows and ranges in which `other` differs from this table.

        Raises:
            DeviceError: the tables are of two GPUs.
            TableError: the tables minimise two objectives.
        """
        return diff_tables(self, other)

    def require_device(self, device: Device) -> None:
        """Raise DeviceError, naming both GPUs, where the table is not for `device`."""
        table_file.require_device(self, device)

    def to_dataframe(self) -> DataFrame:
        """Return the choices as a pandas DataFrame: one line per problem and choice, best first, times in ns.

        Raises:
            ToolchainMissing: pandas is not installed.
        """
        return dataframe(
            {
                "problem": row.problem.name,
                "rank": rank,
                "space": choice.space,
                **config_columns(choice.config),
                "time_ns": choice.time_ns,
                "low_ns": choice.low_ns,
                "high_ns": choice.high_ns,
                "baseline_ns": row.baseline.time_ns if row.baseline else None,
                "samples": choice.samples,
                "evidence": choice.evidence.value,
            }
            for row in self.rows
            for rank, choice in enumerate(row.choices, 1)
        )


@checks_arguments
def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a table's file, or the one in a campaign's folder.

    Raises:
        TableError: the file is missing, damaged, edited, or of a newer schema.

    Example:
        >>> import gemmtune as gt
        >>> gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=8).table.save("table.json")
        >>> gt.read_table("table.json").device.sku
        'H200'
    """
    return Table.of(table_file.read_table(Path(find(path, FileKind.TABLE))))
