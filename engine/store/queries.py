"""Queries that the database itself evaluates: select tasks, count measurements, find the fastest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    ColumnElement,
    Double,
    Integer,
    Select,
    Text,
    and_,
    bindparam,
    cast,
    func,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import measured_as
from gemmtune.engine.store import schema

TASK_FIELDS = ("key", "space", "problem", "device")
"""Columns that tell a task from all others. The key is one, too: a damaged row is no task's."""
_JSON = JSON().with_variant(Text(), "sqlite")  # SQLite holds JSON in columns of text

_EVIDENCE, _VERSIONS = (type_coerce(c, Text) for c in (schema.measurements.c.evidence, schema.toolchains.c.versions))
KEYS = (
    select(*schema.measurements.c["id", "config_digest", "protocol"], _EVIDENCE, _VERSIONS)
    .select_from(schema.measurements)
    .join(schema.toolchains, isouter=True)
    .where(schema.measurements.c.task_id == bindparam("task_id"))
)
"""Query of the ids of one task's measurements, each before the texts that tell it from the others."""

MEASUREMENTS = select(*schema.stored(schema.measurements))
"""Query of every measurement as the database holds it."""


_HELD = schema.measurements.c
_TIME_NS = schema.estimated_time(_HELD.estimate)
UNTIMED = MEASUREMENTS.where(_HELD.status == Status.OK, _TIME_NS.is_(None))
"""Query of the measurements that are damaged, since they are ok and have no time within its interval."""
KNOWN = MEASUREMENTS.where(_HELD.id.in_(bindparam("ids", expanding=True)))
"""Query of the measurements of these ids, for `measurement_of`."""
KIND = ("task_id", "protocol", "toolchain_id")
"""Columns that measurements of one evidence have in common if they compare with each other."""
KNOWN_KEYS = select(_HELD.id, _HELD.config_digest, *(_HELD[name] for name in KIND)).where(
    _HELD.evidence == bindparam("evidence"), *(_HELD[name].in_(bindparam(f"{name}s", expanding=True)) for name in KIND)
)
"""Query of id and config's digest of the measurements of several kinds, by an index alone; their kind stands behind."""
LEADERS = 3
"""Number of measurements that `FASTEST` selects, at most."""
_KIND = {"task": "task_id", "toolchain": "toolchain_id", "protocol": "protocol", "evidence": "evidence"}
_OK = select(_HELD.id).where(
    *(_HELD[name] == bindparam(term) for term, name in _KIND.items()), _HELD.status == Status.OK, _TIME_NS.is_not(None)
)
FASTEST = _OK.order_by(_TIME_NS, _HELD.id).limit(LEADERS)
"""Query of the ids of the fastest measurements of one kind."""


TASK_ID = select(schema.tasks.c.id).where(*(schema.tasks.c[name] == bindparam(name) for name in TASK_FIELDS))
"""Query of the id of one task."""
_TASK_TEXTS = tuple(type_coerce(schema.tasks.c[name], Text) for name in TASK_FIELDS)
TASK_IDS = select(schema.tasks.c.id, *_TASK_TEXTS).where(
    *(text.in_(bindparam(name, expanding=True)) for name, text in zip(TASK_FIELDS, _TASK_TEXTS, strict=True))
)
"""Query of the ids of tasks, each before the texts that tell it from the others."""
EQUAL_FINAL = select(schema.finals.c.id).where(
    *(
        type_coerce(column, Text) == bindparam(column.name)
        for column in schema.finals.c
        if column.name not in ("id", schema.DIGEST)
    )
)
"""Query of the id of a final with equal content."""
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
    workload: Task | Workload | None = None, space: str | None = None, device: str | None = None
) -> Select[Any]:
    """Select the ids of the tasks of a problem, of a space, on a device's SKU; None matches all."""
    columns = schema.tasks.c
    statement = select(columns.id)
    if isinstance(workload, Task):  # the key, too: a damaged row is no task's
        of_task = columns.key == workload.key, columns.device == workload.device, columns.space == workload.space
        statement = statement.where(*of_task)
        statement = statement.where(columns.problem == workload.problem)
    elif workload is not None:
        statement = statement.where(columns.problem.in_(measured_as(workload)))
    if space is not None:
        statement = statement.where(columns.space == space)
    if device is not None:
        statement = statement.where(_field(columns.device, "sku").as_string() == device)
    return statement


def fastest(tasks: Select[Any], evidence: Evidence, protocol: str, without: Sequence[int] = ()) -> Select[tuple[int]]:
    """Select the id of the ok measurement with the least estimated time, the first of equal ones."""
    columns = schema.measurements.c
    return (
        select(columns.id)
        .where(columns.task_id.in_(tasks), columns.evidence == evidence, columns.protocol == protocol)
        .where(columns.status == Status.OK, _TIME_NS.is_not(None), columns.id.not_in(without))
        .order_by(_TIME_NS, columns.id)
        .limit(1)
    )


def counts(without: Sequence[int] = ()) -> Select[Any]:
    """Count the measurements of each kind, in the order of their first ones; behind the facts stands the first's id."""
    columns = schema.measurements.c
    evidence, status = (type_coerce(columns[name], Text).label(name) for name in ("evidence", "status"))
    kinds = (columns.task_id, evidence, columns.protocol, status, columns.worker)
    first = func.min(columns.id)
    facts = (
        func.count().label("number"),
        func.count(_TIME_NS).label("timed"),
        func.min(_TIME_NS).label("best_ns"),
        func.max(columns.created_at).label("last_at"),
    )
    left = [columns.id.not_in(without)] if without else []
    return select(*kinds, *facts, first.label("id")).where(*left).group_by(*kinds).order_by(first)


def fastest_of_each(without: Sequence[int] = (), *, has_arrays: bool = False) -> Select[Any]:
    """Select the id of the fastest measurement of each task, evidence and protocol, the first of equal ones.

    A server that `has_arrays` goes through the measurements once, not twice.
    """
    kinds = _HELD.task_id, _HELD.evidence, _HELD.protocol
    left = [_HELD.id.not_in(without)] if without else []  # asking every row whether it is in nothing takes time
    whole = _TIME_NS.is_not(None), *left
    if has_arrays:
        from sqlalchemy.dialects.postgresql import array  # imports the dialect, which takes a twentieth of a second

        fastest_first = func.min(array([_TIME_NS, cast(_HELD.id, Double)]), type_=ARRAY(Double))
        return select(cast(fastest_first[2], Integer)).where(*whole).group_by(*kinds).order_by(*kinds)
    least = select(*kinds, func.min(_TIME_NS).label("time_ns")).where(*whole).group_by(*kinds).subquery()
    same = (kind == least.c[kind.name] for kind in kinds)
    fastest = and_(*same, least.c.time_ns == _TIME_NS, *left)
    return select(func.min(_HELD.id)).join(least, fastest).group_by(*kinds)


def levels(tasks: Select[Any], protocol: str) -> Select[tuple[int]]:
    """Select the ids of the first measurements of each GPU and reference kernel at these tasks."""
    columns = schema.measurements.c
    reference, board = _field(columns.estimate, "level", "reference").as_string(), BOARD[schema.measurements]
    return (
        select(func.min(columns.id))
        .where(columns.task_id.in_(tasks), columns.protocol == protocol, board.is_not(None))
        .group_by(reference, board)
    )


def _field(column: ColumnElement[Any], *path: str | int) -> ColumnElement[Any]:
    """Return the field at `path` of a column of JSON, NULL where there is none; the database extracts it."""
    return cast(_valid(column), _JSON)[path]


class _valid(FunctionElement[str]):  # noqa: N801 (a function of SQL)
    """A text of JSON, NULL if it is damaged."""

    type = Text()
    inherit_cache = True


@compiles(_valid)
def _as_it_is(element: _valid, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 (SQLAlchemy's)
    return compiler.process(element.clauses, **options)


@compiles(_valid, "sqlite")
def _null_if_damaged(element: _valid, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 (SQLAlchemy's)
    text = compiler.process(element.clauses, **options)
    return f"CASE WHEN json_valid({text}) THEN {text} END"


_LOW, _LEVEL = (_field(_HELD.estimate, name) for name in ("low_ns", "level"))
NEAR = _OK.where(or_(_LOW.as_float() <= bindparam("reach"), _LEVEL.as_string().is_not(None)))
"""Query of the ids of the measurements of one kind whose interval begins below `reach` ns; of several GPUs, all."""

BOARD = {
    schema.measurements: _field(_HELD.estimate, "level", "board").as_string(),
    schema.finals: _field(schema.finals.c.content, "finalists", 0, "estimate", "level", "board").as_string(),
}
"""UUID of the GPU behind a row of each table; NULL for a failure, and where no reference kernel was timed."""
