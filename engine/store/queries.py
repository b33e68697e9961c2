"""Queries that the database itself evaluates: select tasks, count measurements, find the fastest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Double, Select, cast, func, select

from gemmtune.engine.records.measurement import Evidence, ReferenceLevel, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.dialects import json_text
from gemmtune.engine.store.serialization import problem_text, task_row

__all__ = ["MeasurementCount", "counts", "fastest", "levels", "number_since", "task_ids"]


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
    connection: Connection, workload: Task | Problem | None, space: str | None, device: str | None
) -> Select[tuple[int]]:
    """Select the ids of the tasks of a problem, of a space, on a device; None matches all."""
    columns = schema.tasks.c
    statement = select(columns.id)
    if isinstance(workload, Task):
        statement = statement.where(
            *(columns[name] == text for name, text in task_row(workload).items() if name != "key")
        )
    elif workload is not None:
        statement = statement.where(columns.problem == problem_text(workload))
    if space is not None:
        statement = statement.where(columns.space == space)
    if device is not None:
        statement = statement.where(json_text(connection, columns.device, "sku") == device)
    return statement


def fastest(connection: Connection, tasks: Select[tuple[int]], evidence: Evidence, protocol: str) -> Select[tuple[int]]:
    """Select the id of the ok measurement with the least estimated time, the first of equal ones."""
    columns = schema.measurements.c
    return (
        select(columns.id)
        .where(columns.task_id.in_(tasks), columns.evidence == str(evidence), columns.protocol == protocol)
        .where(columns.status == str(Status.OK), columns.estimate.is_not(None))
        .order_by(_time_ns(connection), columns.id)
        .limit(1)
    )


def counts(connection: Connection, task_by_id: Mapping[int, Task]) -> tuple[MeasurementCount, ...]:
    """Count the measurements of each kind, in the order of their first ones."""
    columns = schema.measurements.c
    kinds = (columns.task_id, columns.evidence, columns.protocol, columns.status, columns.worker)
    facts = func.count(), func.min(_time_ns(connection)), func.max(columns.created_at)
    found = connection.execute(select(*kinds, *facts).group_by(*kinds).order_by(func.min(columns.id)))
    return tuple(
        MeasurementCount(
            task_by_id[task_id], Evidence(evidence), protocol, Status(status), worker, number, best_ns, last_at
        )
        for task_id, evidence, protocol, status, worker, number, best_ns, last_at in found
    )


def number_since(connection: Connection, created_at: str) -> int:
    """Count the measurements that were made at that time or later."""
    columns = schema.measurements.c
    return int(connection.execute(select(func.count()).where(columns.created_at >= created_at)).scalar_one())


def levels(connection: Connection, tasks: Select[tuple[int]], protocol: str) -> tuple[ReferenceLevel, ...]:
    """Return the first reference level of each GPU and reference kernel at these tasks, in insertion order."""
    columns = schema.measurements.c
    reference, board = (json_text(connection, columns.estimate, "level", name) for name in ("reference", "board"))
    firsts = (
        select(func.min(columns.id))
        .where(columns.task_id.in_(tasks), columns.protocol == protocol, board.is_not(None))
        .group_by(reference, board)
    )
    found = connection.execute(select(columns.estimate).where(columns.id.in_(firsts)).order_by(columns.id))
    return tuple(ReferenceLevel(**json.loads(estimate)["level"]) for (estimate,) in found)


def _time_ns(connection: Connection) -> ColumnElement[float]:
    return cast(json_text(connection, schema.measurements.c.estimate, "time_ns"), Double)
