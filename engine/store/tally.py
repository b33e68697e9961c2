"""How many measurements there are of each kind, counted by the database itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Double, cast, func, select

from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema
from gemmtune.engine.store.json_field import json_text

__all__ = ["Tally", "number_since", "tally"]


@dataclass(frozen=True, slots=True)
class Tally:
    """Measurements that are alike."""

    task: Task
    """What was searched."""
    evidence: Evidence
    """How the numbers came about."""
    protocol: str
    """Name of the timing protocol."""
    status: Status
    """How they ended."""
    worker: str
    """Who measured."""
    number: int
    """How many there are."""
    best_ns: float | None
    """The least time; None where nothing was timed."""
    last_at: str
    """When the last one was made: UTC, ISO 8601."""


def tally(connection: Connection, task_by_id: Mapping[int, Task]) -> tuple[Tally, ...]:
    """Every kind, in the order of its first measurement."""
    columns = schema.measurements.c
    kinds = (columns.task_id, columns.evidence, columns.protocol, columns.status, columns.worker)
    facts = func.count(), func.min(_time_ns(connection)), func.max(columns.created_at)
    found = connection.execute(select(*kinds, *facts).group_by(*kinds).order_by(func.min(columns.id)))
    return tuple(
        Tally(task_by_id[task], Evidence(evidence), protocol, Status(status), worker, number, best_ns, last_at)
        for task, evidence, protocol, status, worker, number, best_ns, last_at in found
    )


def number_since(connection: Connection, created_at: str) -> int:
    """Measurements that were made then or later."""
    columns = schema.measurements.c
    return int(connection.execute(select(func.count()).where(columns.created_at >= created_at)).scalar_one())


def _time_ns(connection: Connection) -> ColumnElement[float]:
    return cast(json_text(connection, schema.measurements.c.estimate, "time_ns"), Double)
