"""The database's tables, and records as their rows and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TypeVar

from sqlalchemy import Column, Double, ForeignKey, Integer, MetaData, RowMapping, Table, Text, UniqueConstraint

from gemmtune.engine.records.artifact import Resources, Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import DeviceState, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task

__all__ = [
    "METADATA",
    "VERSION",
    "measurement_of",
    "measurement_row",
    "measurements",
    "schema_version",
    "task_of",
    "task_row",
    "tasks",
    "toolchain_of",
    "toolchain_row",
    "toolchains",
]

VERSION = 1
"""Version of the tables below. Raise it with every change to them."""

METADATA = MetaData()

schema_version = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
)
"""One row: the VERSION the database was made with."""

tasks = Table(
    "tasks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),  # for people; the three columns below are the task
    Column("space", Text, nullable=False),
    Column("problem", Text, nullable=False),
    Column("device", Text, nullable=False),
    UniqueConstraint("space", "problem", "device"),
)
"""One row a task. Problem and device are JSON of the fields that make records equal: no weight, no source."""

toolchains = Table(
    "toolchains",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("versions", Text, nullable=False, unique=True),
)
"""One row a toolchain: JSON of its (package, version) pairs."""

measurements = Table(
    "measurements",
    METADATA,
    Column("id", Integer, primary_key=True),  # grows with insertion
    Column("task_id", ForeignKey(tasks.c.id), nullable=False),
    Column("config_digest", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("evidence", Text, nullable=False),
    Column("toolchain_id", ForeignKey(toolchains.c.id), nullable=False),
    Column("config", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("samples_ns", Text, nullable=False),
    Column("error_norm", Text),  # as text: a wrong result's norm may be NaN, which SQLite turns into NULL
    Column("before", Text),
    Column("after", Text),
    Column("resources", Text),
    Column("build_seconds", Double),
    Column("worker", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    UniqueConstraint("task_id", "config_digest", "protocol", "evidence", "toolchain_id"),
)
"""One row a measurement: at most one of a task and config by one protocol, evidence and toolchain. Records are JSON."""

_T = TypeVar("_T")


def task_row(task: Task) -> dict[str, str]:
    """The `tasks` row, without its id; equal tasks give equal rows."""
    device = {f.name: getattr(task.device, f.name) for f in fields(task.device) if f.compare}
    return {"key": task.key, "space": task.space, "problem": _json(task.problem.to_fields()), "device": _json(device)}


def task_of(row: RowMapping) -> Task:
    """The task of a `tasks` row."""
    return Task(
        problem=Problem.from_fields(json.loads(row["problem"])),
        device=Device(**json.loads(row["device"])),
        space=row["space"],
    )


def toolchain_row(toolchain: Toolchain) -> dict[str, str]:
    """The `toolchains` row, without its id."""
    return {"versions": _json(toolchain.versions)}


def toolchain_of(row: RowMapping) -> Toolchain:
    """The toolchain of a `toolchains` row."""
    return Toolchain(tuple((package, version) for package, version in json.loads(row["versions"])))


def measurement_row(measurement: Measurement, task_id: int, toolchain_id: int) -> dict[str, object]:
    """The `measurements` row, without its id."""
    norm = measurement.error_norm
    return {
        "task_id": task_id,
        "config_digest": measurement.config.digest,
        "protocol": measurement.protocol,
        "evidence": str(measurement.evidence),
        "toolchain_id": toolchain_id,
        "config": measurement.config.json,
        "status": str(measurement.status),
        "reason": _storable(measurement.reason),
        "samples_ns": _json(measurement.samples_ns),
        "error_norm": None if norm is None else repr(norm),
        "before": _record(measurement.before),
        "after": _record(measurement.after),
        "resources": _record(measurement.resources),
        "build_seconds": measurement.build_seconds,
        "worker": measurement.worker,
        "created_at": measurement.created_at,
    }


def measurement_of(
    row: RowMapping, task_by_id: Mapping[int, Task], toolchain_by_id: Mapping[int, Toolchain]
) -> Measurement:
    """The measurement of a `measurements` row."""
    norm = row["error_norm"]
    return Measurement(
        task=task_by_id[row["task_id"]],
        config=Config.from_json(row["config"]),
        status=Status(row["status"]),
        evidence=Evidence(row["evidence"]),
        protocol=row["protocol"],
        toolchain=toolchain_by_id[row["toolchain_id"]],
        worker=row["worker"],
        created_at=row["created_at"],
        reason=row["reason"],
        samples_ns=tuple(json.loads(row["samples_ns"])),
        error_norm=None if norm is None else float(norm),
        before=_read(DeviceState, row["before"]),
        after=_read(DeviceState, row["after"]),
        resources=_read(Resources, row["resources"]),
        build_seconds=row["build_seconds"],
    )


def _storable(text: str) -> str:
    # A compiler's or a driver's words may hold bytes that are no text; a database refuses those and NUL.
    return text.encode(errors="backslashreplace").decode().replace("\0", "\\x00")


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _record(record: DeviceState | Resources | None) -> str | None:
    return None if record is None else _json(asdict(record))


def _read(kind: type[_T], text: str | None) -> _T | None:
    return None if text is None else kind(**json.loads(text))
