"""How fast each GPU was at a problem, by the first measurement that says so."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, func, select

from gemmtune.engine.records.measurement import ReferenceLevel
from gemmtune.engine.store import schema
from gemmtune.engine.store.json_field import json_text

__all__ = ["levels"]


def levels(connection: Connection, task_ids: Sequence[int], protocol: str) -> tuple[ReferenceLevel, ...]:
    """The first of each GPU and reference kernel in measurements of these tasks, in the order of insertion."""
    columns = schema.measurements.c
    reference, board = (json_text(connection, columns.estimate, "level", name) for name in ("reference", "board"))
    firsts = (
        select(func.min(columns.id))
        .where(columns.task_id.in_(task_ids), columns.protocol == protocol, board.is_not(None))
        .group_by(reference, board)
    )
    found = connection.execute(select(columns.estimate).where(columns.id.in_(firsts)).order_by(columns.id))
    return tuple(ReferenceLevel(**json.loads(estimate)["level"]) for (estimate,) in found)
