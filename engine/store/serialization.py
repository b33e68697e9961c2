"""Convert records to rows of the database's tables, without their ids, and back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from sqlalchemy import Row

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.column_types import (
    compact_json,
    decode_json,
    estimate_fields,
    estimate_of,
    storable,
    toolchain_of,
)

__all__ = ["MEASUREMENT_COLUMNS", "final_of", "final_row", "identity", "measurement_of", "measurement_row", "task_of"]

_FIELDS = tuple(field.name for field in fields(Measurement) if field.name in schema.measurements.c)
MEASUREMENT_COLUMNS = schema.measurements.c[_FIELDS]
"""Columns that `measurement_of` expects first in a row."""


def identity(record: Task | Toolchain) -> dict[str, object]:
    """Return the columns that tell a task or a toolchain from all others."""
    if isinstance(record, Task):
        return {"space": record.space, "problem": record.problem, "device": record.device}
    return {"versions": record}


def task_of(row: Row[Any]) -> Task:
    """Return the task of a row that has the columns of `tasks`."""
    return Task(row.problem, row.device, row.space)


def measurement_row(measurement: Measurement, task_id: int, toolchain_id: int) -> dict[str, object]:
    """Return the row of `measurements`."""
    ids = {"task_id": task_id, "config_digest": measurement.config.digest, "toolchain_id": toolchain_id}
    return ids | {name: getattr(measurement, name) for name in _FIELDS}


def measurement_of(row: Row[Any], task: Task, toolchain: Toolchain) -> Measurement:
    """Return the measurement of a row that begins with MEASUREMENT_COLUMNS."""
    # Access by position: a look-up by name takes a third of the time of reading a row.
    return Measurement(task=task, toolchain=toolchain, **dict(zip(_FIELDS, row, strict=False)))


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
    refuted = [
        {"space": out.task.space, "config": dict(out.config), "reason": storable(out.reason)} for out in final.failed
    ]
    return {
        "problem": final.problem,
        "device": final.device,
        "protocol": final.protocol,
        "worker": final.worker,
        "created_at": final.created_at,
        "content": compact_json({"finalists": finalists, "refuted": refuted}),
    }


def final_of(row: Row[Any]) -> Final:
    """Return the final of a row of `finals`."""
    problem, device = row.problem, row.device
    content = decode_json(row.content)
    finalists = (
        Finalist(
            task=Task(problem, device, finalist["space"]),
            config=Config(finalist["config"]),
            toolchain=toolchain_of(finalist["toolchain"]),
            estimate=estimate_of(finalist["estimate"]),
            samples_ns=tuple(finalist["samples_ns"]),
            behind=(finalist["behind"][0], finalist["behind"][1]),
            run=finalist.get("run", 1),
        )
        for finalist in content["finalists"]
    )
    refuted = (
        FailedFinalist(Task(problem, device, out["space"]), Config(out["config"]), out["reason"])
        for out in content["refuted"]
    )
    return Final(tuple(finalists), row.protocol, row.worker, row.created_at, tuple(refuted))
