"""Export of a table for a consumer, and the sealed JSON that exporters write."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import PureWindowsPath

from gemmtune.engine.io.blame import STOPS, account
from gemmtune.engine.io.bundled import bundle_text
from gemmtune.engine.io.printing import one_line
from gemmtune.engine.io.reading import is_text
from gemmtune.engine.records.errors import ContractError, DeviceError, GemmtuneError, TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Table
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.tables.licence import LICENCES
from gemmtune.engine.tables.sealed import seal_of
from gemmtune.engine.tables.summation import require_one_summation
from gemmtune.engine.tables.table_file import table_sha256

SEALED = frozenset({"schema", "gemmtune", "table_sha256", "device", "objective", "sha256"})
"""Fields of every sealed export."""


def export_table(exporter: Exporter, table: Table, *, estimated: bool = False) -> Mapping[str, str]:
    """Return the exporter's files, name to text; rows whose first choice is an estimate need `estimated`.

    Raises:
        TableError: the exporter refuses the table or runs none of its kinds of workloads, or the table has estimated
            rows and `estimated` is False; or it is batch-invariant, and rows of one series add in several orders.
        ContractError: the exporter fails, or returns anything else than texts by plain names.
    """
    table = served(exporter, table)
    rows = [row for row in table.rows if row.choices[0].evidence is Evidence.ESTIMATED]
    if rows and not estimated:
        raise TableError(
            f"{len(rows)} of {len(table.rows)} rows are estimated, not timed ({rows[0].problem.name}): tune on an "
            f"{table.device.name}, or allow estimated rows (gemmtune export --estimated)"
        )
    if table.batch_invariant:
        require_one_summation(table)
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


def export_bundle(exporter: Exporter, tables: Sequence[Table], *, estimated: bool = False) -> Mapping[str, str]:
    """Return the exporter's files for the tables of several GPUs; a loader picks the table of its GPU.

    Files that the GPUs have in common stand once, as do objects whose fields are apart; others become bundles.

    Raises:
        DeviceError: two tables are for one GPU.
        TableError, ContractError: see `export_table`; or a file differs that is no JSON object.
    """
    ((gpu, number),) = Counter(table.device.name for table in tables).most_common(1)
    if number > 1:
        raise DeviceError(f"{number} tables are for {gpu}: make one of them with gemmtune export A B --out FOLDER")
    exports = {table.device.name: export_table(exporter, table, estimated=estimated) for table in tables}
    if len(exports) == 1:
        return exports[gpu]
    found = dict(exporter.shared(tuple(exports.values())))
    replaced = {name.partition("/")[0] for name in found}
    for name in dict.fromkeys(name for files in exports.values() for name in files):
        if name.partition("/")[0] not in replaced:
            found[name] = _joined(name, {gpu: files[name] for gpu, files in exports.items() if name in files})
    return found


def _joined(name: str, texts: Mapping[str, str]) -> str:
    """Return one text of a file's texts by GPU."""
    distinct = list(dict.fromkeys(texts.values()))
    if len(distinct) == 1:
        return distinct[0]
    if name == LICENCES:
        return "\n".join(distinct)
    if not name.endswith(".json"):
        raise TableError(f"{name} differs for {' and '.join(texts)}: export each table to a folder of its own")
    records: list[dict[str, object]] = list(map(json.loads, distinct))
    if len(set().union(*records)) == sum(map(len, records)):
        union = {key: value for record in records for key, value in record.items()}
        return json.dumps(union, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return bundle_text(texts)


def file_fault(name: object, text: object) -> str:
    """Return why an exporter's file cannot be written below the consumer's folder; empty if it can."""
    if not (isinstance(name, str) and isinstance(text, str)):
        return "it returned no texts by name"
    parts = name.split("/")
    plain = all(part not in ("", ".", "..") and PureWindowsPath(part).name == part for part in parts)
    if not (plain and name.isprintable()):
        return f"{name!r} is not a path of plain names"
    return "" if is_text(text) else f"{name} is not Unicode text"


def left_out_line(name: str, table: Table) -> str:
    """Return a line with what the exporter of that name left out of its export of the table; empty for nothing."""
    exporter = registry.exporter(name)
    line = exporter.left_out(served(exporter, table))
    return f"exported to {name}: {line}" if line else ""


def served(exporter: Exporter, table: Table) -> Table:
    """Return the table with the rows of the workloads that the consumer runs."""
    kinds = {row.problem.kind for row in table.rows} | {row.problem.kind for row in table.ranges}
    if kinds <= set(exporter.workloads):
        return table
    rows = tuple(row for row in table.rows if row.problem.kind in exporter.workloads)
    if table.rows and not rows:
        served = " or ".join(exporter.workloads)
        way = "tune those, or name another consumer with --to: gemmtune list exporters"
        raise TableError(f"the consumer runs workloads of kind {served}; rows are of {', '.join(sorted(kinds))}: {way}")
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
