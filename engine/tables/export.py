"""Export of a table for a consumer, and the sealed JSON that exporters write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version

from gemmtune.engine.records.errors import TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.table_file import table_sha256

__all__ = ["export_table", "sealed_json"]


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
            f"{table.device.name}, or allow estimated rows (gemmtune export --estimated)"
        )
    return exporter.export(table)


def sealed_json(table: Table, schema: int, content: Mapping[str, object]) -> str:
    """Return an export's JSON text, whose `sha256` is of the other fields as compact JSON with sorted keys.

    Args:
        table: table to export; its hash, device and objective are written.
        schema: number of the export's schema.
        content: further fields.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    fields = {
        "schema": schema,
        "gemmtune": version("gemmtune"),
        "table_sha256": table_sha256(table),
        "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
        "objective": table.objective,
        **content,
    }
    body = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    sealed = {**fields, "sha256": hashlib.sha256(body.encode()).hexdigest()}
    return json.dumps(sealed, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
