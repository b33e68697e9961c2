"""Queries that the database itself evaluates: select tasks, count measurements, find the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Select, Text, bindparam, cast, func, select

from gemmtune.engine.records.measurement import Evidence, ReferenceLevel, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.serialization import MEASUREMENT_COLUMNS

__all__ = [
    "KNOWN",
    "KNOWN_OF_CONFIGS",
    "MEASUREMENTS",
    "TASK_ID",
    "TOOLCHAIN_ID",
    "MeasurementCount",
    "counts",
    "fastest",
    "levels",
    "task_ids",
]

_TASK_FIELDS = ("space", "problem", "device")
_JSON = JSON().with_variant(Text(), "sqlite")  # SQLite holds JSON in columns of text

MEASUREMENTS = (
    select(
        *MEASUREMENT_COLUMNS,
        schema.measurements.c.id,
        *schema.tasks.c[_TASK_FIELDS],
        schema.toolchains.c.versions,
    )
    .select_from(schema.measurements)
    .join(schema.tasks, isouter=True)  # an outer join keeps SQLite from ordering the measurements by task
    .join(schema.toolchains, isouter=True)
)
"""Query of every measurement with its task and toolchain."""


_HELD = schema.measurements.c
KNOWN = (
    select(*MEASUREMENT_COLUMNS)
    .where(*(_HELD[name] == bindparam(name) for name in ("task_id", "protocol", "evidence", "toolchain_id")))
    .order_by(_HELD.id)
)
"""Query of the comparable measurements of one task, in insertion order."""
KNOWN_OF_CONFIGS = KNOWN.where(_HELD.config_digest.in_(bindparam("digests", expanding=True)))
"""Query of those among them whose configs have one of the digests."""
TASK_ID = select(schema.tasks.c.id).where(*(schema.tasks.c[name] == bindparam(name) for name in _TASK_FIELDS))
"""Query of the id of one task."""
TOOLCHAIN_ID = select(schema.toolchains.c.id).where(schema.toolchains.c.versions == bindparam("versions"))
"""Query of the id of one toolchain."""


@dataclass(frozen=True, slots=True)
class MeasurementCount:
    """Number of measurements that one task has of one kind, and the best of them."""

    task: Task
    """The task that was searched."""
    evidence: Evidence
    """Evidence behind the numbers: measured, replayed or estimated."""
    protocol: str
    """Name of the timing protocol."""
    status: Status
    """Status that the evaluations ended with."""
    worker: str
    """Name of the worker that measured."""
    number: int
    """Number of measurements of this kind."""
    best_ns: float | None
    """Least estimated time, in nanoseconds; None where nothing was timed."""
    last_at: str
    """Time of the last measurement: UTC, ISO 8601."""


def task_ids(
    workload: Task | Problem | None = None, space: str | None = None, device: str | None = None
) -> Select[Any]:
    """Select the ids of the tasks of a problem, of a space, on a device's SKU; None matches all."""
    columns = schema.tasks.c
    statement = select(columns.id)
    if isinstance(workload, Task):
        statement = statement.where(columns.device == workload.device, columns.space == workload.space)
        workload = workload.problem
    if workload is not None:
        statement = statement.where(columns.problem == workload)
    if space is not None:
        statement = statement.where(columns.space == space)
    if device is not None:
        statement = statement.where(_field(columns.device, "sku").as_string() == device)
    return statement


def fastest(tasks: Select[Any], evidence: Evidence, protocol: str) -> Select[tuple[int]]:
    """Select the id of the ok measurement with the least estimated time, the first of equal ones."""
    columns = schema.measurements.c
    return (
        select(columns.id)
        .where(columns.task_id.in_(tasks), columns.evidence == evidence, columns.protocol == protocol)
        .where(columns.status == Status.OK, columns.estimate.is_not(None))
        .order_by(_time_ns(), columns.id)
        .limit(1)
    )


def counts(connection: Connection, task_by_id: Mapping[int, Task]) -> tuple[MeasurementCount, ...]:
    """Count the measurements of each kind, in the order of their first ones."""
    columns = schema.measurements.c
    kinds = (columns.task_id, columns.evidence, columns.protocol, columns.status, columns.worker)
    facts = func.count(), func.min(_time_ns()), func.max(columns.created_at)
    found = connection.execute(select(*kinds, *facts).group_by(*kinds).order_by(func.min(columns.id)))
    return tuple(MeasurementCount(task_by_id[task_id], *kind) for task_id, *kind in found)


def levels(connection: Connection, tasks: Select[Any], protocol: str) -> tuple[ReferenceLevel, ...]:
    """Return the first reference level of each GPU and reference kernel at these tasks, in insertion order."""
    columns = schema.measurements.c
    reference, board = (_field(columns.estimate, "level", name).as_string() for name in ("reference", "board"))
    firsts = (
        select(func.min(columns.id))
        .where(columns.task_id.in_(tasks), columns.protocol == protocol, board.is_not(None))
        .group_by(reference, board)
    )
    found = connection.execute(select(columns.estimate).where(columns.id.in_(firsts)).order_by(columns.id))
    return tuple(estimate.level for (estimate,) in found)


def _field(column: ColumnElement[Any], *path: str) -> ColumnElement[Any]:
    """Return the field at `path` of a column of JSON, NULL where there is none; the database extracts it."""
    return cast(column, _JSON)[path]


def _time_ns() -> ColumnElement[float]:
    found: ColumnElement[float] = _field(schema.measurements.c.estimate, "time_ns").as_float()
    return found
