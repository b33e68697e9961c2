"""Databases of an older schema, brought to the present one."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict

from sqlalchemy import Connection, Text, bindparam, case, column, func, literal, select, table, text, update

from gemmtune.engine.records.measurement import Estimate
from gemmtune.engine.statistics import median_interval
from gemmtune.engine.store import schema

__all__ = ["upgrade"]

_PAGE = 1000  # rows in memory at once


def upgrade(connection: Connection, version: int) -> None:
    """Take the database from `version`, 1 to schema.VERSION, to schema.VERSION, inside the caller's transaction."""
    for step in _STEPS[version - 1 :]:
        step(connection)
    connection.execute(update(schema.schema_version).values(version=schema.VERSION))


def _add_estimates_and_finals(connection: Connection) -> None:
    """1 to 2. What was timed before had the median for its estimate, and no correction for drift."""
    # Written out, not taken from `schema`: this step stays as it is when the tables change again.
    for added in (
        "estimate TEXT",
        "outliers TEXT NOT NULL DEFAULT '[]'",
        "drift DOUBLE PRECISION NOT NULL DEFAULT 1",
        "energy_joules DOUBLE PRECISION",
    ):
        connection.execute(text(f"ALTER TABLE measurements ADD COLUMN {added}"))
    schema.finals.create(connection)  # as long as it has not changed since schema 2
    timed = table("measurements", *map(column, ("id", "status", "samples_ns", "estimate")))
    ok = select(timed.c.id, timed.c.samples_ns).where(timed.c.status == "ok").order_by(timed.c.id).limit(_PAGE)
    fill = update(timed).where(timed.c.id == bindparam("of")).values(estimate=bindparam("found"))
    last = 0
    while page := connection.execute(ok.where(timed.c.id > last)).all():
        estimates = [(row_id, Estimate(*median_interval(json.loads(samples)))) for row_id, samples in page]
        connection.execute(fill, [{"of": row_id, "found": json.dumps(asdict(e))} for row_id, e in estimates])
        last = page[-1][0]


def _add_bias_and_dynamic_m(connection: Connection) -> None:
    """2 to 3. Problems were of static sizes, and what an addmm adds was not said: the bias of a linear layer."""
    for name in ("tasks", "finals"):
        problem = column("problem", Text)
        without_brace = func.substr(problem, 1, func.length(problem) - 1)
        bias = case((problem.contains('"op":"addmm"'), "vector"), else_="none")
        added = literal(',"bias":"') + bias + '","dynamic_m":"false"}'
        connection.execute(update(table(name, problem)).values(problem=without_brace + added))


_STEPS: tuple[Callable[[Connection], None], ...] = (_add_estimates_and_finals, _add_bias_and_dynamic_m)
"""The step at place i takes schema i + 1 to i + 2."""
