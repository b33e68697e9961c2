"""Convert records to rows of the database's tables, without their ids, and back."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from operator import attrgetter, itemgetter
from sys import float_info
from types import UnionType
from typing import Any, TypeVar, get_origin, get_type_hints

from sqlalchemy import Row

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.codec import decoded, encoded
from gemmtune.engine.store import schema
from gemmtune.engine.store.column_types import (
    DECODING_ERRORS,
    DEVICE,
    PROBLEM,
    TOOLCHAIN,
    AsText,
    compact_json,
    decode_json,
    storable,
    storable_estimate,
)
from gemmtune.engine.store.queries import MeasurementCount

_COLUMNS = schema.measurements.c
_NAMES = [c.name for c in _COLUMNS]
_FIELDS = [name for name in _NAMES if name in {field.name for field in fields(Measurement)}]
_in_row = itemgetter(*map(_NAMES.index, _FIELDS))
_in_measurement = attrgetter(*_FIELDS)
_DECODERS = [(name, c.type.decode) for name in _FIELDS if isinstance((c := _COLUMNS[name]).type, AsText)]
_HINTS = [(hint, get_origin(hint)) for hint in map(get_type_hints(Measurement).__getitem__, _FIELDS)]
_KINDS = tuple(hint if origin in (None, UnionType) else origin for hint, origin in _HINTS)
_DIGEST = _NAMES.index("config_digest")
_T = TypeVar("_T")


class DamagedRow(ValueError):  # noqa: N818 (the name says what is wrong)
    """A stored row holds what gemmtune does not write; the message says what."""


def identity(record: Task | Toolchain) -> dict[str, object]:
    """Return the columns that tell a task or a toolchain from all others."""
    if isinstance(record, Task):
        return {"key": record.key, "space": record.space, "problem": record.problem, "device": record.device}
    return {"versions": record}


def task_texts(task: Task) -> tuple[str, ...]:
    """Return the columns of `identity` as the database holds them."""
    return task.key, task.space, PROBLEM.encode(task.problem), DEVICE.encode(task.device)


def task_of(row: Row[Any]) -> Task:
    """Return the task of a row of `tasks`; raise a DamagedRow if it is damaged."""
    _require_whole(row)
    task = Task(read(PROBLEM.decode, row.problem), read(DEVICE.decode, row.device), row.space)
    if row.key != task.key:
        raise DamagedRow(f"its key is {row.key}, its content {task.key}")
    return task


def toolchain_in(row: Row[Any]) -> Toolchain:
    """Return the toolchain of a row of `toolchains`; raise a DamagedRow if it is damaged."""
    _require_whole(row)
    return read(TOOLCHAIN.decode, row.versions)


def read(decode: Callable[[str], _T], text: str) -> _T:
    """Return the value of a stored text; raise a DamagedRow if it is damaged."""
    try:
        return decode(text)
    except DECODING_ERRORS as error:
        raise DamagedRow(str(error)) from None


def _require_whole(row: Sequence[Any]) -> None:
    """Refuse a row of `schema.stored` whose digest is of other cells; rows of older versions have none."""
    if row[-1] is not None and row[-1] != schema.row_digest(row[1:-1]):
        raise DamagedRow("its digest does not match its content")


def measurement_row(measurement: Measurement, task_id: int, toolchain_id: int) -> dict[str, object]:
    """Return the row of `measurements` as the database will hold it."""
    ids = {"task_id": task_id, "config_digest": measurement.config.digest, "toolchain_id": toolchain_id}
    return schema.encoded(schema.measurements, ids | dict(zip(_FIELDS, _in_measurement(measurement), strict=True)))


def measurement_of(row: Row[Any], task: Task | None, toolchain: Toolchain | None) -> Measurement:
    """Return the measurement of a row of `schema.stored`.

    Raises:
        DamagedRow: the row differs from its digest, its task or toolchain is None, config and digest or status and
            estimate contradict each other, or a value is out of bounds.
    """
    cells = tuple(row)
    _require_whole(cells)
    if task is None or toolchain is None:
        raise DamagedRow(f"its {'toolchain' if task else 'task'} is missing or damaged")
    found = dict(zip(_FIELDS, _in_row(cells), strict=True))
    try:
        for name, decode in _DECODERS:
            if (text := found[name]) is not None:
                found[name] = decode(text)
    except DECODING_ERRORS as error:
        raise DamagedRow(f"{name}: {error}") from None
    if not all(map(isinstance, found.values(), _KINDS)):
        raise DamagedRow(f"a value is of another type than its column: {found}"[:300])
    made = Measurement(task=task, toolchain=toolchain, **found)
    if made.config.digest != cells[_DIGEST]:
        raise DamagedRow(f"its config {made.config.json} does not match its digest")
    if (made.status is Status.OK) is (made.estimate is None):
        raise DamagedRow(f"its status is {made.status}, and its estimate {made.estimate}; ok alone has one")
    if made.estimate is not None and not made.samples_ns and made.evidence is not Evidence.ESTIMATED:
        raise DamagedRow(f"it is {made.evidence} and ok, and has no samples")
    for name in ("drift", "energy_joules", "build_seconds"):
        if not 0 <= (getattr(made, name) or 0.0) <= float_info.max:
            raise DamagedRow(f"{name}={getattr(made, name)} is not a number from 0 on")
    return made


def final_row(final: Final) -> dict[str, object]:
    """Return the row of `finals` as the database will hold it; equal finals give equal rows."""
    finalists = [_with_space(replace(out, estimate=storable_estimate(out.estimate))) for out in final.finalists]
    failed = [_with_space(replace(out, reason=storable(out.reason))) for out in final.failed]
    values = {name: getattr(final, name) for name in ("problem", "device", "protocol", "worker", "created_at")}
    return schema.encoded(schema.finals, values | {"content": compact_json({"finalists": finalists, "failed": failed})})


def _with_space(out: Finalist | FailedFinalist) -> dict[str, object]:
    """Return the JSON of a finalist, with its space for the task: problem and device are the final's."""
    return {"space": out.task.space, **{name: part for name, part in encoded(out).items() if name != "task"}}


def final_of(row: Row[Any]) -> Final:
    """Return the final of a row of `finals`; raise a DamagedRow if it is damaged."""
    _require_whole(row)
    of = {"problem": read(PROBLEM.decode, row.problem), "device": read(DEVICE.decode, row.device)}
    found = {name: getattr(row, name) for name in ("protocol", "worker", "created_at")}
    try:
        content = decode_json(row.content)
        for name, stored in (("finalists", "finalists"), ("failed", "failed" if "failed" in content else "refuted")):
            # `refuted` is its name in older rows
            found[name] = [{"task": {**of, "space": out.pop("space", None)}, **out} for out in content[stored]]
        return decoded(Final, found)
    except (AttributeError, KeyError, TypeError):
        raise DamagedRow("content: it is no object with lists of finalists and failed ones") from None
    except DECODING_ERRORS as error:
        raise DamagedRow(f"content: {error}") from None


def count_of(row: Row[Any], task: Task | None) -> MeasurementCount:
    """Return the count of a row of `queries.counts`; None for the task says that it is missing or damaged."""
    if task is None:
        raise DamagedRow("its task is missing or damaged")
    evidence = read(Evidence, row.evidence)
    status = read(Status, row.status)
    texts = all(isinstance(text, str) for text in (row.protocol, row.worker, row.last_at))
    if not texts or not isinstance(row.best_ns, float | None):  # an index holds them, which may be damaged, too
        raise DamagedRow(f"a time or a text is of another type: {tuple(row)}"[:300])
    number = row.timed if status is Status.OK else row.number
    return MeasurementCount(task, evidence, row.protocol, status, row.worker, number, row.best_ns, row.last_at)
