"""A table as a file: canonical JSON that carries the SHA-256 of its own content.

Beside its own fields the file has `schema`, `gemmtune` and `sha256`; a row has its problem's `name` and `weight`, too.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from functools import lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path

from gemmtune.engine.io.numbers import checked, shown
from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.catalogue import known
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, TableError
from gemmtune.engine.records.table import RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.codec import Malformed, decoded, encoded
from gemmtune.engine.store.files import write_whole

SCHEMA = 7
"""Number of the file's schema. A change that a reader must know of adds 1; the schema before is read, too."""

_EXPORTED = {"made_with": "Inductor", "rounding_bound": "CuTe dispatchers"}
"""Consumers by a field that only their exported tables have."""
_SEAL_FIELDS = frozenset({"schema", "gemmtune", "sha256"})
_END = "\n}\n"


def table_text(table: Table) -> str:
    """Return the file's text: sorted keys, indent of 2 spaces, final newline. Equal tables have equal text.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    text = _dump(_content(table))
    return f"{text.removesuffix(_END)}{_seal(_sha256(text))}{_END}"


def table_sha256(table: Table) -> str:
    """Return the SHA-256 that the table's file carries, 64 hexadecimal digits.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    return _hash(_content(table))


def write_table(path: Path, table: Table) -> Table:
    """Write the table's file, whole or not at all, and return the table as `read_table` will.

    A file at `path` stays as it is where an error is raised.

    Raises:
        TableError: `read_table` would refuse the file.
        UsageError: the folder is missing or not writable.
    """
    text = table_text(table)
    read = parse_table(text, f"cannot write {path}")
    write_whole(path, text.encode())
    return read


def read_table(path: Path) -> Table:
    """Read a table from a file.

    Raises:
        TableError: the file cannot be read, or is no valid table (see `parse_table`).
    """
    return parse_table(read_text(path, "table", TableError), str(path))


def parse_table(text: str, source: str) -> Table:
    """Parse the text that `table_text` returned; the name of its source begins every message.

    Raises:
        TableError: the text is not JSON, truncated, of another schema or edited (its hash differs). Or it has a field
            that is unknown or missing, a value out of bounds, or two rows for one problem.
    """
    try:
        return _table_of(text)
    except TableError as error:
        raise TableError(f"{source}: {error}") from None


@lru_cache(1)  # a repeated campaign reads its table, and then checks the equal text that it writes
def _table_of(text: str) -> Table:
    record = parse_json(text, "the table", TableError)
    if not isinstance(record, dict):
        raise TableError("not a table: its JSON is not an object")
    exported = next((name for field, name in _EXPORTED.items() if field in record), None)
    if exported is not None:
        raise TableError(f"an export for {exported}, which gemmtune show prints; name the table.json it is made of")
    _require_schema(record)
    if not _is_sealed(text, record):
        state = "does not match" if "sha256" in record else "is missing"
        raise TableError(f"edited after it was written: its sha256 {state}; export it again")
    older = record["schema"] < SCHEMA
    if older:
        _rename_leads(record.get("rows"))
    try:
        _read_problems(record)
        table = decoded(Table, {name: value for name, value in record.items() if name not in _SEAL_FIELDS})
    except Malformed as error:
        raise TableError(str(error)) from None
    _refuse_duplicates(row.problem for row in table.rows)
    device = replace(known(table.device), source=table.device.source)
    rows = tuple(row.with_lead() for row in table.rows) if older else table.rows
    return replace(table, device=device, rows=rows, ranges=tuple(_ordered(table.ranges)))


def _read_problems(record: Mapping[str, object]) -> None:
    """Put the problem into each row, in place of its fields and of the row's name and weight."""
    for kind in ("rows", "ranges"):
        rows = record.get(kind)
        for place, row in enumerate(rows if isinstance(rows, list) else ()):
            if isinstance(row, dict):
                try:
                    row["problem"] = _problem(row.get("problem"), row.pop("name", None), row.pop("weight", None))
                except Malformed as error:
                    raise Malformed(f"{kind}[{place}]: {error}") from None


def _problem(fields: object, name: object, weight: object) -> Workload:
    problem = decoded(Workload, fields)  # type: ignore[type-abstract] # the plug-in of its kind makes it
    if problem.name != name:
        raise Malformed(f"name={shown(name)}, and the problem is {problem.name}")
    found = checked(weight, "weight", float, above=0, error=Malformed)
    return replace(problem, weight=found)  # type: ignore[type-var] # a dataclass


def _rename_leads(rows: object) -> None:
    """Give the rows of schema 6 the name that a lead has now; there it was `margin`, and never below 0."""
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and "margin" in row:
            row["lead"] = row.pop("margin")


def require_device(table: Table, device: Device) -> None:
    """Raise a DeviceError that names both GPUs and the first differing field, if a table is of another one."""
    if table.device == device:
        return
    for each in fields(Device):
        theirs, ours = getattr(table.device, each.name), getattr(device, each.name)
        if each.compare and theirs != ours:
            raise DeviceError(
                f"the table is for {table.device.name}, not {device.name} ({each.name}={theirs!r}, here {ours!r}): "
                f"tune on this GPU or choose its table"
            )


def _content(table: Table) -> dict[str, object]:
    _refuse_duplicates(row.problem for row in table.rows)
    rows = tuple(sorted(table.rows, key=lambda row: row.problem.name))
    ranges = tuple(_ordered(table.ranges))
    content: dict[str, object] = encoded(replace(table, rows=(), ranges=()))
    content |= {"rows": list(map(_row, rows)), "ranges": list(map(_row, ranges))}
    return content | {"schema": SCHEMA, "gemmtune": version("gemmtune")}


def _row(row: Row | RangeRow) -> dict[str, object]:
    """Return the JSON of a row, with the name and the weight of its problem."""
    return {**encoded(row), "name": row.problem.name, "weight": float(row.problem.weight)}


def _ordered(ranges: Iterable[RangeRow]) -> list[RangeRow]:
    """Sort ranges by problem and size."""
    ordered = sorted(ranges, key=lambda row: (repr(row.problem.series), row.first))
    for one, other in pairwise(ordered):
        same = one.problem.series == other.problem.series
        if same and other.first <= one.last:
            raise TableError(f"two ranges are for {one.problem.range_size}={other.first} of {other.problem.name}")
    return ordered


def _dump(record: Mapping[str, object]) -> str:
    try:
        return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise TableError("a number of the table is not finite") from None


def _hash(content: Mapping[str, object]) -> str:
    return _sha256(_dump(content))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _seal(sha256: str) -> str:
    """Return the file's last field: no other sorts behind it."""
    return f',\n  "sha256": "{sha256}"'


def _is_sealed(text: str, record: Mapping[str, object]) -> bool:
    """Return whether the record carries the SHA-256 of its content."""
    sha256 = record.get("sha256")
    seal = f"{_seal(str(sha256))}{_END}"
    if text.endswith(seal) and _sha256(f"{text.removesuffix(seal)}{_END}") == sha256:
        return True  # as `table_text` wrote it
    return sha256 == _hash({key: value for key, value in record.items() if key != "sha256"})


def _require_schema(record: Mapping[str, object]) -> None:
    schema, written = record.get("schema"), record.get("gemmtune")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise TableError(f"not a table: schema={schema!r} is not an integer from 1 on")
    if schema not in (SCHEMA - 1, SCHEMA):
        way_out = "upgrade gemmtune" if schema > SCHEMA else "tune again"
        raise TableError(
            f"schema {schema} (written by gemmtune {written}) is not schema {SCHEMA}, the one that gemmtune "
            f"{version('gemmtune')} reads: {way_out}"
        )


def _refuse_duplicates(problems: Iterable[Workload]) -> None:
    seen: set[Workload] = set()
    for problem in problems:
        if problem in seen:
            raise TableError(f"two rows are for {problem.name}: keep one per problem")
        seen.add(problem)
