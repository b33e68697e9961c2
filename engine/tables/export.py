"""Export of a table for a consumer, and the sealed JSON that exporters write."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import PureWindowsPath

from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.io.printing import one_line
from gemmtune.engine.io.reading import is_text
from gemmtune.engine.records.errors import ContractError, GemmtuneError, TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.sealed import seal_of
from gemmtune.engine.tables.table_file import table_sha256


def export_table(exporter: Exporter, table: Table, *, estimated: bool = False) -> Mapping[str, str]:
    """Return the exporter's files, name to text; rows whose first choice is an estimate need `estimated`.

    Raises:
        TableError: the exporter refuses the table or runs none of its kinds of workloads, or the table has estimated
            rows and `estimated` is False.
        ContractError: the exporter fails, or returns anything else than texts by plain names.
    """
    table = _served(exporter, table)
    rows = [row for row in table.rows if row.choices[0].evidence is Evidence.ESTIMATED]
    if rows and not estimated:
        raise TableError(
            f"{len(rows)} of {len(table.rows)} rows are estimated, not timed ({rows[0].problem.name}): tune on an "
            f"{table.device.name}, or allow estimated rows (gemmtune export --estimated)"
        )
    try:
        files = dict(exporter.export(table))
        problem = next((fault for item in files.items() if (fault := file_fault(*item))), "")
    except (GemmtuneError, *STOPS):
        raise
    except BaseException as error:  # a third party's
        problem = account(error, {type(exporter).__module__.partition(".")[0]})
    if problem:
        name = f"{type(exporter).__module__}.{type(exporter).__qualname__}"
        raise ContractError(one_line(f"exporter {name} is broken: {problem}"))
    return files


def file_fault(name: object, text: object) -> str:
    """Return why an exporter's file cannot be written below the consumer's folder; empty if it can."""
    if not (isinstance(name, str) and isinstance(text, str)):
        return "it returned no texts by name"
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and PureWindowsPath(part).name == part for part in parts)
    if not (plain and name.isprintable()):
        return f"{name!r} is not a path of plain names"
    return "" if is_text(text) else f"{name} is not Unicode text"


def _served(exporter: Exporter, table: Table) -> Table:
    """Return the table with the rows of the workloads that the consumer runs."""
    kinds = {row.problem.kind for row in table.rows} | {row.problem.kind for row in table.ranges}
    if kinds <= set(exporter.workloads):
        return table
    rows = tuple(row for row in table.rows if row.problem.kind in exporter.workloads)
    if table.rows and not rows:
        served = " or ".join(exporter.workloads)
        raise TableError(f"the consumer runs workloads of kind {served}; rows are of {', '.join(sorted(kinds))}")
    ranges = tuple(row for row in table.ranges if row.problem.kind in exporter.workloads)
    return replace(table, rows=rows, ranges=ranges)


def sealed_json(table: Table, schema: int, content: Mapping[str, object], parse: Callable[[bytes], object]) -> str:
    """Return an export's JSON text, sealed by its `sha256`.

    Args:
        table: table to export; its hash, device and objective are written.
        schema: number of the export's schema.
        content: further fields.
        parse: check of the loader.

    Raises:
        TableError: the loader would refuse the text, two rows are for one problem, or a number is not finite.
    """
    fields = {
        "schema": schema,
        "gemmtune": version("gemmtune"),
        "table_sha256": table_sha256(table),
        "device": {"sku": table.device.sku, "name": table.device.name, "arch": table.device.arch},
        "objective": table.objective,
        **content,
    }
    try:
        unsealed = json.dumps(fields | {"sha256": ""}, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        seal = seal_of(unsealed.encode(), "")
        text = unsealed.replace('\n  "sha256": ""', f'\n  "sha256": "{seal}"')  # only fields stand behind two spaces
        parse(text.encode())
    except (TypeError, ValueError) as error:
        raise TableError(f"cannot be exported: {error}") from None
    return text
