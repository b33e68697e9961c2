"""Export of a table, which refuses estimated rows unless they are asked for."""

from __future__ import annotations

from collections.abc import Mapping

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams.exporter import Exporter

__all__ = ["export_table"]


def export_table(exporter: Exporter, table: Table, *, estimated: bool = False) -> Mapping[str, str]:
    """Return the exporter's files, name to text.

    Args:
        exporter: exporter of the consumer.
        table: table to export.
        estimated: whether to export rows whose first choice is an estimate.

    Raises:
        TableError: the exporter refuses the table, or the table has estimated rows and `estimated` is False.
    """
    rows = [row for row in table.rows if row.choices[0].evidence is Evidence.ESTIMATED]
    if rows and not estimated:
        raise TableError(
            f"{len(rows)} of {len(table.rows)} rows are estimated, not timed ({rows[0].problem.name}): tune on an "
            f"{table.device.name}, or ask for them with gemmtune export --estimated"
        )
    return exporter.export(table)
