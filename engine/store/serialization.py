"""Convert records to rows of the database's tables, without their ids, and back."""

from dataclasses import fields
from sys import float_info
from types import UnionType
from typing import Any, get_origin, get_type_hints

from sqlalchemy import Row

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.store import schema
from gemmtune.engine.store.column_types import (
    DEVICE,
    PROBLEM,
    Undecodable,
    compact_json,
    config_of,
    decode_json,
    estimate_fields,
    estimate_of,
    numbers_of,
    storable,
    toolchain_of,
)

__all__ = [
    "MEASUREMENT_COLUMNS",
    "DamagedRow",
    "final_of",
    "final_row",
    "identity",
    "measurement_of",
    "measurement_row",
    "require_kinds",
    "task_of",
    "task_texts",
    "toolchain_in",
]

_FIELDS = tuple(field.name for field in fields(Measurement) if field.name in schema.measurements.c)
_HINTS = get_type_hints(Measurement)
_KINDS = tuple(get_origin(_HINTS[name]) or _HINTS[name] for name in _FIELDS)
_KINDS = tuple(_HINTS[name] if kind is UnionType else kind for name, kind in zip(_FIELDS, _KINDS, strict=True))
MEASUREMENT_COLUMNS = (*schema.measurements.c[_FIELDS], *schema.measurements.c["config_digest", "id"])
"""Columns that `measurement_of` expects first in a row."""


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
    """Return the task of a row of `tasks`.

    Raises:
        DamagedRow: the row is damaged.
    """
    require_kinds(problem=(row.problem, Workload), device=(row.device, Device), space=(row.space, str))
    task = Task(row.problem, row.device, row.space)
    if row.key != task.key:
        raise DamagedRow(f"its key is {row.key}, its content {task.key}")
    return task


def toolchain_in(row: Row[Any]) -> Toolchain:
    """Return the toolchain of a row of `toolchains`.

    Raises:
        DamagedRow: the row is damaged.
    """
    require_kinds(versions=(row.versions, Toolchain))
    toolchain: Toolchain = row.versions
    return toolchain


def require_kinds(**found: tuple[object, type | UnionType]) -> None:
    """Refuse values of another type than their column holds.

    Raises:
        DamagedRow: a value has another type; the message names the column.
    """
    for name, (value, kind) in found.items():
        if not isinstance(value, kind):
            raise DamagedRow(f"{name}: {value.reason if isinstance(value, Undecodable) else repr(value)[:100]}")


def measurement_row(measurement: Measurement, task_id: int, toolchain_id: int) -> dict[str, object]:
    """Return the row of `measurements`."""
    ids = {"task_id": task_id, "config_digest": measurement.config.digest, "toolchain_id": toolchain_id}
    return ids | {name: getattr(measurement, name) for name in _FIELDS}


def measurement_of(row: Row[Any], task: Task | None, toolchain: Toolchain | None) -> Measurement:
    """Return the measurement of a row that begins with MEASUREMENT_COLUMNS.

    Raises:
        DamagedRow: task or toolchain is None, config and digest or status and estimate contradict each other, or a
            value is out of bounds.
    """
    if task is None or toolchain is None:
        raise DamagedRow(f"its {'toolchain' if task else 'task'} is missing or damaged")
    # Access by position: a look-up by name takes a third of the time of reading a row.
    if not all(map(isinstance, row, _KINDS)):
        require_kinds(**{name: (value, kind) for name, value, kind in zip(_FIELDS, row, _KINDS, strict=False)})
    made = Measurement(task=task, toolchain=toolchain, **dict(zip(_FIELDS, row, strict=False)))
    if made.config.digest != row[len(_FIELDS)]:
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
    """Return the row of `finals`; equal finals give equal rows."""
    finalists = [
        {
            "space": finalist.task.space,
            "config": dict(finalist.config),
            "toolchain": finalist.toolchain.versions,
            "estimate": estimate_fields(finalist.estimate),
            "samples_ns": finalist.samples_ns,
            "behind": finalist.behind,
        }
        | ({"run": finalist.run} if finalist.run != 1 else {})  # left out as in older rows
        for finalist in final.finalists
    ]
    failed = [
        {"space": out.task.space, "config": dict(out.config), "reason": storable(out.reason)} for out in final.failed
    ]
    return {
        "problem": final.problem,
        "device": final.device,
        "protocol": final.protocol,
        "worker": final.worker,
        "created_at": final.created_at,
        "content": compact_json({"finalists": finalists, "failed": failed}),
    }


def final_of(row: Row[Any]) -> Final:
    """Return the final of a row of `finals`.

    Raises:
        DamagedRow: the row is damaged.
    """
    problem, device = row.problem, row.device
    require_kinds(problem=(problem, Workload), device=(device, Device), content=(row.content, str))
    require_kinds(**{name: (getattr(row, name), str) for name in ("protocol", "worker", "created_at")})
    try:
        content = decode_json(row.content)
        finalists = tuple(
            Finalist(
                task=Task(problem, device, finalist["space"]),
                config=config_of(finalist["config"]),
                toolchain=toolchain_of(finalist["toolchain"]),
                estimate=estimate_of(finalist["estimate"]),
                samples_ns=numbers_of(finalist["samples_ns"]),
                behind=_interval(*finalist["behind"]),
                run=int(finalist.get("run", 1)),
            )
            for finalist in content["finalists"]
        )
        failed = tuple(
            FailedFinalist(Task(problem, device, out["space"]), config_of(out["config"]), str(out["reason"]))
            for out in content["failed" if "failed" in content else "refuted"]  # its name in older rows
        )
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError) as error:
        raise DamagedRow(f"content: {type(error).__name__}: {error}") from None
    spaces = {each.task.space for each in finalists} | {each.task.space for each in failed}
    if not finalists or not all(isinstance(space, str) for space in spaces):
        raise DamagedRow(f"content: {len(finalists)} finalists of the spaces {spaces}")
    return Final(finalists, row.protocol, row.worker, row.created_at, failed)


def _interval(low: float, high: float) -> tuple[float, float]:
    if not low <= high:  # an end may be infinite
        raise ValueError(f"behind={low} to {high} is no interval")
    return low, high
