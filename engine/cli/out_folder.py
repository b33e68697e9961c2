"""The folder --out: checked before anything is measured, and what is written to it."""

from __future__ import annotations

from pathlib import Path

from gemmtune.engine.api.output_folder import make_folder, write_all
from gemmtune.engine.records.errors import TableError
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.export import export_table
from gemmtune.engine.tables.table_file import read_table

__all__ = ["database_url", "export_what_can_be"]


def database_url(out: Path, database: str | None) -> str:
    """Where the measurements go: the named database, or else a file in the folder, which is made."""
    make_folder(out)
    return database or str(out / "measurements.db")


def export_what_can_be(table: Path, out: Path) -> tuple[list[Path], list[str]]:
    """Export to every consumer of what was tuned; the notes say which cannot be given this table, and why."""
    written, notes = [], []
    content = read_table(table)  # what the file holds, not what memory holds: the file is what ships
    tuned = {choice.space for row in content.rows for choice in row.choices}
    for name in registry.names(Exporter):
        exporter = registry.exporter(name)
        if exporter.spaces and tuned.isdisjoint(exporter.spaces):
            continue
        try:
            files = export_table(exporter, content)
        except TableError as error:
            old = f"; {out / name} is of an earlier table" if (out / name).exists() else ""
            notes.append(f"not exported to {name}: {error}{old}")
        else:
            written += write_all(files, out / name)
    return written, notes
