"""A table as a file: canonical JSON that carries the SHA-256 of its own content.

Each record is an object of its fields, written and checked by their types.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from importlib.metadata import version
from itertools import pairwise
from pathlib import Path
from sys import float_info
from types import NoneType
from typing import Any, get_args, get_type_hints

from gemmtune.engine.io.reading import parse_json, read_text
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.catalogue import known
from gemmtune.engine.records.config import Config, Value
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, ProblemError, TableError, UnknownPlugin
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import fields_of, workload_of
from gemmtune.engine.store.files import write_whole

SCHEMA = 7
"""Number of the file's schema. A change that a reader must know of adds 1; the schema before is read, too."""

_EXPORTED = {"made_with": "Inductor", "rounding_bound": "CuTe dispatchers"}
"""Consumers by a field that only their exported tables have."""
_ABOVE = {"lead": -1, "weight": 0, "time_ns": 0, "low_ns": 0, "high_ns": 0}
"""Exclusive lower bounds of numbers; all others are from 0 on."""
_END = "\n}\n"
_EVIDENCE = frozenset(Evidence)
_LOSS = tuple[int, float]
"""Type of a pair of m and loss."""
_is_record, _arguments = cache(is_dataclass), cache(get_args)


def table_text(table: Table) -> str:
    """Return the file's text: sorted keys, indent of 2 spaces, final newline. Equal tables have equal text.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    text = _dump(_content(table))
    return _sealed(text, _sha256(text))


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
    older, names = record["schema"] < SCHEMA, set(_hints(Table))
    _require_fields(record, "the table", {*names, "schema", "gemmtune", "sha256"})
    if not _is_sealed(text, record):
        raise TableError("edited after it was written: its sha256 does not match; export it again")
    if older:
        _rename_leads(record["rows"])
    table: Table = _read(Table, {name: record[name] for name in names}, "the table")
    _refuse_duplicates(row.problem for row in table.rows)
    device = replace(known(table.device), source=table.device.source)
    rows = tuple(row.with_lead() for row in table.rows) if older else table.rows
    return replace(table, device=device, rows=rows, ranges=tuple(_ordered(table.ranges)))


def _rename_leads(rows: object) -> None:
    """Give the rows of schema 6 the name that a lead has now; there it was `margin`, and never below 0."""
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and "margin" in row:
            row["lead"] = row.pop("margin")


def require_device(table: Table, device: Device) -> None:
    """Refuse a table of another GPU.

    Raises:
        DeviceError: the GPUs differ; the message names both and the first differing field.
    """
    if table.device == device:
        return
    for field in fields(Device):
        theirs, ours = getattr(table.device, field.name), getattr(device, field.name)
        if field.compare and theirs != ours:
            raise DeviceError(
                f"the table is for {table.device.name}, not {device.name} ({field.name}={theirs!r}, here {ours!r}): "
                f"tune on this GPU or choose its table"
            )


def _content(table: Table) -> dict[str, object]:
    _refuse_duplicates(row.problem for row in table.rows)
    rows = tuple(sorted(table.rows, key=lambda row: row.problem.name))
    ordered = replace(table, rows=rows, ranges=tuple(_ordered(table.ranges)))
    return {"schema": SCHEMA, "gemmtune": version("gemmtune"), **_written(ordered)}


def _ordered(ranges: Iterable[RangeRow]) -> list[RangeRow]:
    """Sort ranges by problem and size.

    Raises:
        TableError: two ranges share a size.
    """
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


def _sealed(text: str, sha256: str) -> str:
    return f"{text.removesuffix(_END)}{_seal(sha256)}{_END}"


def _seal(sha256: str) -> str:
    """Return the file's last field: no other sorts behind it."""
    return f',\n  "sha256": "{sha256}"'


def _is_sealed(text: str, record: Mapping[str, object]) -> bool:
    """Return whether the record carries the SHA-256 of its content."""
    seal = f"{_seal(str(record['sha256']))}{_END}"
    if text.endswith(seal) and _sha256(f"{text.removesuffix(seal)}{_END}") == record["sha256"]:
        return True  # as `table_text` wrote it
    content = {key: value for key, value in record.items() if key != "sha256"}
    return record["sha256"] == _hash(content)


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


@cache
def _hints(kind: type) -> dict[str, Any]:
    """Return the types of a record's fields in the file; answers of one board and weights have no field."""
    kept = {f.name for f in fields(kind) if f.compare or f.name == "source"}
    return {name: hint for name, hint in get_type_hints(kind).items() if name in kept}


def _written(record: Any) -> dict[str, object]:  # noqa: ANN401 (a dataclass)
    """Return a record as JSON; one of a problem has the problem's name and weight, too."""
    kind: type = type(record)
    found = {name: _plain(hint, getattr(record, name)) for name, hint in _hints(kind).items()}
    if "problem" in found:
        found |= {"name": record.problem.name, "weight": float(record.problem.weight)}
    return found


def _plain(hint: Any, value: Any) -> object:  # noqa: ANN401 (a type and its instance)
    """Return a field's value as JSON."""
    if isinstance(value, Workload):
        return fields_of(value)
    if isinstance(value, Config):
        return dict(value)
    if _is_record(value.__class__):
        return _written(value)
    if hint == _LOSS:
        return [value[0], float(value[1])]
    if isinstance(value, tuple):
        return [_plain(_arguments(hint)[0], item) for item in value]
    return float(value) if value is not None and float in (hint, *_arguments(hint)) else value


def _require_fields(record: object, where: str, known: Set[str]) -> None:
    if not isinstance(record, dict):
        raise TableError(f"{where} is not an object")
    if unknown := sorted(set(record) - known):
        raise TableError(f"{where} has the unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
    if missing := sorted(known - set(record)):
        raise TableError(f"{where} lacks the field {missing[0]!r}")


def _read(kind: type, record: Any, where: str) -> Any:  # noqa: ANN401 (JSON, and an instance of `kind`)
    """Return the record that `_written` wrote; messages begin with `where`."""
    hints = _hints(kind)
    if "problem" in hints:
        hints = hints | {"name": str, "weight": float}
    _require_fields(record, where, set(hints))
    if "problem" in hints:
        where = f"{where} ({record['name']})"
    found = {name: _parsed(hint, record[name], name, where) for name, hint in hints.items()}
    if "problem" in hints:
        found["problem"] = replace(found["problem"], weight=found.pop("weight"))
        if found["problem"].name != found.pop("name"):
            raise TableError(f"{where}: its problem is {found['problem'].name}")
    try:
        made = kind(**found)
    except DeviceError as error:
        raise TableError(f"{where}: {error}") from None
    if isinstance(made, Row) and not made.choices:
        raise TableError(f"{where} has no choice")
    if isinstance(made, RangeRow) and made.last < made.first:
        raise TableError(f"{where}: last={made.last} is not an integer from {made.first} on")
    if isinstance(made, Choice):
        _refuse_values(made, where)
    return made


def _refuse_values(choice: Choice, where: str) -> None:
    time_ns, low_ns, high_ns = choice.time_ns, choice.low_ns, choice.high_ns
    if not low_ns <= time_ns <= high_ns:
        raise TableError(f"{where}: time_ns={time_ns:g} is outside low_ns={low_ns:g} to high_ns={high_ns:g}")
    try:
        Toolchain.parse(choice.toolchain)
    except ValueError as error:
        raise TableError(f"{where}: {error}") from None
    if choice.samples < 1 and choice.evidence is not Evidence.ESTIMATED:
        raise TableError(f"{where}: samples={choice.samples} is not an integer from 1 on")


def _parsed(hint: Any, value: Any, name: str, where: str) -> Any:  # noqa: ANN401 (JSON, and an instance of `hint`)
    """Return the field's value that `_plain` wrote."""
    kinds = _arguments(hint)
    if NoneType in kinds:
        return None if value is None else _parsed(kinds[0], value, name, where)
    inside = f"{where} {name}".removeprefix("the table ") if hint is Workload or _is_record(hint) else ""
    if hint is Workload:
        if not isinstance(value, dict):
            raise TableError(f"{inside} is not an object")
        for key, text in value.items():
            if not isinstance(text, str):
                raise TableError(f"{inside}: {key}={text!r} is not text")
        try:
            problem = workload_of(value)
        except (ProblemError, UnknownPlugin) as error:
            raise TableError(f"{where}: {error}") from None
        _require_fields(value, inside, set(fields_of(problem)))
        return problem
    if _is_record(hint):
        return _read(hint, value, inside)
    wanted, valid = _expected(hint, value, name)
    if not valid:
        raise TableError(f"{where}: {name}={value!r} is not {wanted}")
    if hint == _LOSS:
        return value[0], float(value[1])
    if ... in kinds:
        item_name = name.removesuffix("s")
        return tuple(_parsed(kinds[0], item, f"{item_name} {i}", where) for i, item in enumerate(value, 1))
    return hint(value)


def _expected(hint: Any, value: Any, name: str) -> tuple[str, bool]:  # noqa: ANN401 (a type, and JSON)
    """Return what a field holds in words, and whether the value is such."""
    if hint is str:
        return "text", isinstance(value, str)
    if hint is int:
        least = 0 if name == "samples" else 1
        return f"an integer from {least} on", _is_number(value) and isinstance(value, int) and value >= least
    if hint is float and name in _ABOVE:
        return f"a number above {_ABOVE[name]}", _is_number(value) and value > _ABOVE[name]
    if hint is float:
        return "a number from 0 on", _is_number(value) and value >= 0
    if hint is Evidence:
        return f"one of {', '.join(Evidence)}", isinstance(value, str) and value in _EVIDENCE
    if hint is Config:
        valid = isinstance(value, dict) and all(isinstance(item, Value) for item in value.values())
        return "an object of numbers and texts", valid
    if hint == _LOSS:
        valid = isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))
        return "a pair of m and loss", valid and isinstance(value[0], int)
    return "a list", isinstance(value, list)


def _is_number(value: object) -> bool:
    """Return whether a value is a finite number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= float_info.max


def _refuse_duplicates(problems: Iterable[Workload]) -> None:
    seen: set[Workload] = set()
    for problem in problems:
        if problem in seen:
            raise TableError(f"two rows are for {problem.name}: keep one per problem")
        seen.add(problem)
