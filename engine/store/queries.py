"""Queries that the database itself evaluates: select tasks, count measurements, find the fastest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import JSON, ColumnElement, Connection, Select, Text, cast, func, select

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Evidence, ReferenceLevel, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.serialization import MEASUREMENT_COLUMNS

__all__ = ["MEASUREMENTS", "MeasurementCount", "counts", "fastest", "known", "levels", "task_ids", "toolchain_id"]

_JSON = JSON().with_variant(Text(), "sqlite")  # SQLite holds JSON in columns of text

MEASUREMENTS = (
    select(
        *MEASUREMENT_COLUMNS,
        schema.measurements.c.id,
        *schema.tasks.c["space", "problem", "device"],
        schema.toolchains.c.versions,
    )
    .select_from(schema.measurements)
    .join(schema.tasks, isouter=True)  # an outer join keeps SQLite from ordering the measurements by task
    .join(schema.toolchains, isouter=True)
)
"""Query of every measurement with its task and toolchain."""


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


def toolchain_id(toolchain: Toolchain) -> Select[Any]:
    """Select the id of a toolchain."""
    columns = schema.toolchains.c
    return select(columns.id).where(columns.versions == toolchain)


def known(columns: Select[Any], task: Task, protocol: str, evidence: Evidence, toolchain: Toolchain) -> Select[Any]:
    """Select columns of the measurements of a task and a toolchain by a protocol, in insertion order."""
    held = schema.measurements.c
    return (
        columns.where(held.task_id == task_ids(task).scalar_subquery())
        .where(held.toolchain_id == toolchain_id(toolchain).scalar_subquery())
        .where(held.protocol == protocol, held.evidence == evidence)
        .order_by(held.id)
    )


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
