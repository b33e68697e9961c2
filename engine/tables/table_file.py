"""A table as a file: canonical JSON that carries the SHA-256 of its own content."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import fields, replace
from importlib.metadata import version
from itertools import pairwise
from math import isfinite
from pathlib import Path
from types import UnionType
from typing import Any

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import DeviceError, ProblemError, TableError
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.store.files import write_whole

__all__ = ["SCHEMA", "parse_table", "read_table", "require_device", "table_sha256", "table_text", "write_table"]

SCHEMA = 5
"""Number of the file's schema. A change that a reader must know of adds 1; no other schema is read."""

_FIELDS = {"schema", "gemmtune", "sha256", "device", "objective", "rows", "ranges"}
_DEVICE_FIELDS = tuple(f.name for f in fields(Device) if f.compare or f.name == "source")
"""Fields that tell devices apart, and their source; not the answers of one board."""
_ROW_FIELDS = {f.name for f in fields(Row)} | {"name", "weight"}
_RANGE_FIELDS = {f.name for f in fields(RangeRow)} | {"name", "weight"}
_LOSSES = ("tuned", "held_out", "probed")
_PROBLEM_FIELDS = {f.name for f in fields(Problem) if f.compare}


def table_text(table: Table) -> str:
    """Return the file's text: sorted keys, indent of 2 spaces, final newline. Equal tables have equal text.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    content = _content(table)
    return _dump({**content, "sha256": _hash(content)})


def table_sha256(table: Table) -> str:
    """Return the SHA-256 that the table's file carries, 64 hexadecimal digits.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
    """
    return _hash(_content(table))


def write_table(path: Path, table: Table) -> None:
    """Write the table's file, whole or not at all.

    Raises:
        TableError: two rows are for one problem, or a number is not finite.
        UsageError: the folder is missing or not writable; a file at `path` stays as it is.
    """
    write_whole(path, table_text(table).encode())


def read_table(path: Path) -> Table:
    """Read a table from a file.

    Raises:
        TableError: the file cannot be read, or is no valid table (see `parse_table`).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise TableError(f"{path}: not a table: it is not UTF-8 text") from None
    except OSError as error:
        raise TableError(f"{path}: cannot be read: {error.strerror}") from error
    return parse_table(text, str(path))


def parse_table(text: str, source: str) -> Table:
    """Parse the text that `table_text` returned.

    Args:
        text: content of a table's file.
        source: file name or other origin; it begins every message.

    Raises:
        TableError: the text is not JSON, truncated, of another schema or edited (its hash differs). Or it has a field
            that is unknown or missing, a value out of bounds, or two rows for one problem.
    """
    try:
        record = _load(text)
        _require_schema(record)
        _Fields(record, "the table", _FIELDS)
        content = {key: value for key, value in record.items() if key != "sha256"}
        if record["sha256"] != _hash(content):
            raise TableError("edited after it was written: its sha256 does not match; export it again")
        return _table(record)
    except TableError as error:
        raise TableError(f"{source}: {error}") from None


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
    rows = sorted(table.rows, key=lambda row: (row.problem.name, repr(row.problem)))
    return {
        "schema": SCHEMA,
        "gemmtune": version("gemmtune"),
        "device": {name: getattr(table.device, name) for name in _DEVICE_FIELDS},
        "objective": table.objective,
        "rows": [_row_record(row) for row in rows],
        "ranges": [_range_record(row) for row in _ordered(table.ranges)],
    }


def _ordered(ranges: Iterable[RangeRow]) -> list[RangeRow]:
    """Sort ranges by problem and m.

    Raises:
        TableError: two ranges share an m.
    """
    ordered = sorted(ranges, key=lambda row: (repr(replace(row.problem, m=1, weight=1.0)), row.first))
    for one, other in pairwise(ordered):
        same = replace(one.problem, m=1) == replace(other.problem, m=1)
        if same and other.first <= one.last:
            raise TableError(f"two ranges are for m={other.first} of {other.problem.name}")
    return ordered


def _range_record(row: RangeRow) -> dict[str, object]:
    measured = {name: [[m, float(loss)] for m, loss in getattr(row, name)] for name in _LOSSES}
    served = {"first": row.first, "last": row.last, "choice": _choice_record(row.choice)}
    return {**_problem_record(row.problem), **served, **measured}


def _row_record(row: Row) -> dict[str, object]:
    return {
        **_problem_record(row.problem),
        "choices": [_choice_record(choice) for choice in row.choices],
        "baseline": None if row.baseline is None else _choice_record(row.baseline),
        "margin": float(row.margin),
        "tie_band": [dict(config) for config in row.tie_band],
        "regret_bound": None if row.regret_bound is None else float(row.regret_bound),
        "loss": float(row.loss),
    }


def _problem_record(problem: Problem) -> dict[str, object]:
    return {"name": problem.name, "problem": problem.to_fields(), "weight": float(problem.weight)}


def _choice_record(choice: Choice) -> dict[str, object]:
    record = {f.name: getattr(choice, f.name) for f in fields(Choice)}
    times = {name: float(record[name]) for name in ("time_ns", "low_ns", "high_ns")}
    return {**record, **times, "config": dict(choice.config), "evidence": choice.evidence.value}


def _dump(record: Mapping[str, object]) -> str:
    try:
        return json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    except ValueError:
        raise TableError("a number of the table is not finite") from None


def _hash(content: Mapping[str, object]) -> str:
    return hashlib.sha256(_dump(content).encode()).hexdigest()


def _load(text: str) -> dict[str, object]:
    body = text.strip()
    try:
        record = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        if not body:
            raise TableError("the file is empty") from None
        if body.startswith("{") and (not body.endswith("}") or error.pos >= len(text.rstrip())):
            raise TableError(f"truncated: it ends at line {len(text.splitlines())} inside the table") from None
        raise TableError(f"not a table: no JSON at line {error.lineno}: {error.msg}") from None
    if not isinstance(record, dict):
        raise TableError("not a table: its JSON is not an object")
    return record


def _unique_keys(pairs: list[tuple[str, object]]) -> dict[str, object]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        raise TableError(f"field {next(k for k in keys if keys.count(k) > 1)!r} stands twice in one object")
    return record


def _refuse_constant(text: str) -> float:
    raise TableError(f"{text} is not a finite number")


def _require_schema(record: Mapping[str, object]) -> None:
    schema, written = record.get("schema"), record.get("gemmtune")
    if isinstance(schema, bool) or not isinstance(schema, int) or schema < 1:
        raise TableError(f"not a table: schema={schema!r} is not an integer from 1 on")
    if schema != SCHEMA:
        way_out = "upgrade gemmtune" if schema > SCHEMA else "tune again"
        raise TableError(
            f"schema {schema} (written by gemmtune {written}) is not schema {SCHEMA}, the one that gemmtune "
            f"{version('gemmtune')} reads: {way_out}"
        )


class _Fields:
    """Checked access to one JSON object of the file; messages name the object."""

    def __init__(self, record: object, where: str, known: Set[str]) -> None:
        if not isinstance(record, dict):
            raise TableError(f"{where} is not an object")
        if unknown := sorted(set(record) - known):
            raise TableError(f"{where} has the unknown field {unknown[0]!r}; known: {', '.join(sorted(known))}")
        if missing := sorted(known - set(record)):
            raise TableError(f"{where} lacks the field {missing[0]!r}")
        self._record, self._where = record, where

    def text(self, name: str) -> str:
        return str(self._checked(name, str, "text"))

    def integer(self, name: str, least: int) -> int:
        return int(self._checked(name, int, f"an integer from {least} on", lambda value: value >= least))

    def number(self, name: str, above: float) -> float:
        wanted = f"a number above {above:g}"
        return float(self._checked(name, int | float, wanted, lambda value: isfinite(value) and value > above))

    def fraction(self, name: str) -> float:
        wanted = "a number from 0 on"
        return float(self._checked(name, int | float, wanted, lambda value: isfinite(value) and value >= 0))

    def items(self, name: str) -> list[object]:
        return list(self._checked(name, list, "a list"))

    def value(self, name: str) -> object:
        return self._record[name]

    def bad(self, name: str, wanted: str) -> TableError:
        return TableError(f"{self._where}: {name}={self._record[name]!r} is not {wanted}")

    def _checked(
        self, name: str, kind: type | UnionType, wanted: str, valid: Callable[[Any], bool] = lambda _: True
    ) -> Any:  # noqa: ANN401 (an instance of `kind`)
        value = self._record[name]
        if isinstance(value, bool) or not isinstance(value, kind) or not valid(value):
            raise self.bad(name, wanted)
        return value


def _table(record: dict[str, object]) -> Table:
    table = _Fields(record, "the table", _FIELDS)
    rows = tuple(_row(row, f"row {i}") for i, row in enumerate(table.items("rows"), 1))
    _refuse_duplicates(row.problem for row in rows)
    ranges = _ordered(_range(row, f"range {i}") for i, row in enumerate(table.items("ranges"), 1))
    return Table(_device(table.value("device")), rows, table.text("objective"), tuple(ranges))


def _device(record: object) -> Device:
    texts = {"sku", "name", "arch", "source"}
    device = _Fields(record, "device", set(_DEVICE_FIELDS))
    numbers = {name: device.integer(name, least=1) for name in _DEVICE_FIELDS if name not in texts}
    return Device(**{name: device.text(name) for name in texts}, **numbers)  # type: ignore[arg-type]


def _row(record: object, where: str) -> Row:
    row = _Fields(record, where, _ROW_FIELDS)
    where = f"{where} ({row.text('name')})"
    problem = _problem(row, where)
    choices = tuple(_choice(c, f"{where} choice {i}") for i, c in enumerate(row.items("choices"), 1))
    if not choices:
        raise TableError(f"{where} has no choice")
    return Row(
        problem=problem,
        choices=choices,
        baseline=None if row.value("baseline") is None else _choice(row.value("baseline"), f"{where} baseline"),
        margin=row.number("margin", above=-1),
        tie_band=tuple(_config(config, f"{where} tie_band") for config in row.items("tie_band")),
        regret_bound=None if row.value("regret_bound") is None else row.fraction("regret_bound"),
        loss=row.fraction("loss"),
    )


def _range(record: object, where: str) -> RangeRow:
    row = _Fields(record, where, _RANGE_FIELDS)
    where = f"{where} ({row.text('name')})"
    first = row.integer("first", least=1)
    return RangeRow(
        problem=_problem(row, where),
        first=first,
        last=row.integer("last", least=first),
        choice=_choice(row.value("choice"), f"{where} choice"),
        tuned=_losses(row, "tuned"),
        held_out=_losses(row, "held_out"),
        probed=_losses(row, "probed"),
    )


def _losses(row: _Fields, name: str) -> tuple[tuple[int, float], ...]:
    found = []
    for pair in row.items(name):
        match pair:
            case [int() as m, int() | float() as loss] if not (isinstance(m, bool) or isinstance(loss, bool)):
                found.append((m, float(loss)))
            case _:
                raise row.bad(name, "a list of pairs of m and loss")
    return tuple(found)


def _problem(row: _Fields, where: str) -> Problem:
    record = _Fields(row.value("problem"), f"{where} problem", _PROBLEM_FIELDS)
    texts = {name: record.text(name) for name in _PROBLEM_FIELDS}
    try:
        problem = Problem.from_fields({**texts, "weight": repr(row.number("weight", above=0))})
    except ProblemError as error:
        raise TableError(f"{where}: {error}") from None
    if problem.name != row.text("name"):
        raise TableError(f"{where}: its problem is {problem.name}")
    return problem


def _choice(record: object, where: str) -> Choice:
    choice = _Fields(record, where, {f.name for f in fields(Choice)})
    time_ns, low_ns, high_ns = (choice.number(name, above=0) for name in ("time_ns", "low_ns", "high_ns"))
    if not low_ns <= time_ns <= high_ns:
        raise TableError(f"{where}: time_ns={time_ns:g} is outside low_ns={low_ns:g} to high_ns={high_ns:g}")
    evidence = _evidence(choice)
    return Choice(
        space=choice.text("space"),
        config=_config(choice.value("config"), where),
        time_ns=time_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        samples=choice.integer("samples", least=0 if evidence is Evidence.ESTIMATED else 1),
        evidence=evidence,
        toolchain=choice.text("toolchain"),
        protocol=choice.text("protocol"),
    )


def _config(record: object, where: str) -> Config:
    if not isinstance(record, dict) or not all(isinstance(v, bool | int | float | str) for v in record.values()):
        raise TableError(f"{where}: config={record!r} is not an object of numbers and texts")
    return Config(record)


def _evidence(record: _Fields) -> Evidence:
    try:
        return Evidence(record.text("evidence"))
    except ValueError:
        raise record.bad("evidence", f"one of {', '.join(Evidence)}") from None


def _refuse_duplicates(problems: Iterable[Problem]) -> None:
    seen: set[Problem] = set()
    for problem in problems:
        if problem in seen:
            raise TableError(f"two rows are for {problem.name}: keep one per problem")
        seen.add(problem)
