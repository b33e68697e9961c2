"""Define the tables of the database."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any
from zlib import crc32

from sqlalchemy import (
    Column,
    ColumnElement,
    Double,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    TableClause,
    Text,
    UniqueConstraint,
    column,
    type_coerce,
)
from sqlalchemy import table as sqlalchemy_table
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.store import column_types as types
from gemmtune.engine.store.column_types import AsText

VERSION = 3
"""Version of the tables below; a change to them adds 1. Databases of other versions are refused."""
DIGEST = "digest"
"""Last column of a table of records: the `row_digest` of the others without the id; NULL in rows of older versions."""
RECORDS = "tasks", "toolchains", "measurements", "finals"
"""Names of the tables of records."""

_CONFIG = types.remembered(types.cell(Config), 2**14)  # tasks share configs and hashes
_SAMPLES = types.cell(tuple[float, ...])
_POSITIONS = types.remembered(types.cell(tuple[int, ...]), 2**10)  # empty in most rows

METADATA = MetaData()

schema_version = Table("schema_version", METADATA, Column("version", Integer, primary_key=True, autoincrement=False))
"""One row that holds the VERSION of the tables."""

tasks = Table(
    "tasks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),  # for people; the three columns below are the task
    Column("space", Text, nullable=False),
    Column("problem", types.PROBLEM, nullable=False),
    Column("device", types.DEVICE, nullable=False),
    Column(DIGEST, Text),
    UniqueConstraint("space", "problem", "device"),
)
"""One row per task. Problem and device are JSON of the fields that make records equal, without weight and source."""

toolchains = Table(
    "toolchains",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("versions", types.TOOLCHAIN, nullable=False, unique=True),
    Column(DIGEST, Text),
)
"""One row per toolchain, as JSON of its (package, version) pairs."""

measurements = Table(
    "measurements",
    METADATA,
    Column("id", Integer, primary_key=True),  # grows with insertion
    Column("task_id", ForeignKey(tasks.c.id), nullable=False),
    Column("config_digest", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("evidence", AsText(str, cache(Evidence)), nullable=False),
    Column("toolchain_id", ForeignKey(toolchains.c.id), nullable=False),
    Column("config", _CONFIG, nullable=False),
    Column("status", AsText(str, cache(Status)), nullable=False),
    Column("reason", AsText(types.storable, str), nullable=False),
    Column("samples_ns", _SAMPLES, nullable=False),
    Column("error_norm", AsText(repr, float)),  # a wrong result's norm may be NaN, which SQLite turns into NULL
    Column("before", types.DEVICE_STATE),
    Column("after", types.DEVICE_STATE),
    Column("resources", types.RESOURCES),
    Column("build_seconds", Double),
    Column("worker", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("estimate", types.ESTIMATE),
    Column("outliers", _POSITIONS, nullable=False),
    Column("drift", Double, nullable=False),
    Column("energy_joules", Double),
    Column(DIGEST, Text),
    UniqueConstraint("task_id", "config_digest", "protocol", "evidence", "toolchain_id"),
)
"""One row per measurement: at most one per task, config, protocol, evidence and toolchain. Records are JSON."""

finals = Table(
    "finals",
    METADATA,
    Column("id", Integer, primary_key=True),  # grows with insertion
    Column("problem", types.PROBLEM, nullable=False),
    Column("device", types.DEVICE, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("worker", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("content", Text, nullable=False),
    Column(DIGEST, Text),
)
"""One row per final. Problem and device are as in `tasks`; the content is JSON of the finalists and the failed ones."""


asked = Table(
    "asked",
    METADATA,
    Column("campaign", Text, primary_key=True),  # key of the search: digest of what is searched, and how
    Column("search", Integer, primary_key=True, autoincrement=False),  # 0; older versions numbered a campaign's
    Column("digests", AsText(" ".join, str.split), nullable=False),
)
"""One row per finished search: the digests of the configs it asked, in order. Older databases lack the table."""


campaigns = Table(
    "campaigns",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("owner", Text, nullable=False),  # user of the driver
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("location", Text, nullable=False),  # host or cluster whose GPUs it takes
    Column("started", Double, nullable=False),  # seconds of the database's clock
    Column("seen", Double, nullable=False),  # when the driver wrote this row last
    Column("state", Text, nullable=False),
    Column("wanted", Text, nullable=False),  # what the driver is told: run, pause or cancel
    Column("priority", Integer, nullable=False),
    Column("added", Text, nullable=False),  # problems that were added, a line of JSON each, as in `tasks`
    Column("answers", Text, nullable=False),  # what the driver says to each added problem: a JSON object of texts
    Column("problems", Integer, nullable=False),
    Column("done", Integer, nullable=False),  # evaluations, with those that the database answered
    Column("total", Integer, nullable=False),
    Column("gpu_seconds_held", Double, nullable=False),
    Column("gpu_seconds_busy", Double, nullable=False),
    Column("core_seconds", Double, nullable=False),
    Column("gain", Double, nullable=False),  # share of the baselines' weighted time that is saved
    Column("gain_problems", Integer, nullable=False),  # problems that the gain is of
    Column("gain_per_hour", Double),
    Column("cost", Double),
)
"""One row per driver that runs or ran a campaign. Older databases lack the table, or some of the columns below."""
ADDED_TO_CAMPAIGNS = {"answers": ("TEXT", "''"), "gain_problems": ("INTEGER", "0")}
"""Columns that older databases lack, with their type and value there."""


SHARED = MetaData()
"""Tables that several drivers work by, on a server alone."""

claims = Table(
    "claims",
    SHARED,
    Column("work", Text, primary_key=True),  # digest of a task, and how it is measured
    Column("digest", Text, primary_key=True),  # of a config, or the word for a final
    Column("owner", Text, nullable=False),  # driver that evaluates it
    Column("until", Double, nullable=False),  # end of its lease: seconds of the server's clock
)
"""One row per config that a driver evaluates, and per final that it holds; it goes with the result."""


@cache
def stored(table: Table) -> tuple[ColumnElement[Any], ...]:
    """Return the columns of a table as the database holds them, texts undecoded."""
    return tuple(type_coerce(c, Text).label(c.name) if isinstance(c.type, AsText) else c for c in table.c)


@cache
def untyped(table: Table) -> TableClause:
    """Return the table for inserting rows of `encoded`, whose values are texts already."""
    return sqlalchemy_table(table.name, *(column(each.name) for each in table.c))


def encoded(table: Table, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a new row as the database will hold it, with its digest and without an id."""
    row = dict(values)
    for name, code in _codes(table):
        if (value := row[name]) is not None:
            row[name] = code(value)
    row[DIGEST] = row_digest(map(row.__getitem__, _cells(table)))
    return row


def row_digest(cells: Iterable[object]) -> str:
    """Return the digest of a row's cells as the database holds them, without its id: it finds damage, no forgery."""
    text = "\0".join(map(str, cells))  # a database refuses NUL
    return f"{crc32(text.encode(errors='surrogatepass')):08x}"


@cache
def _cells(table: Table) -> tuple[str, ...]:
    """Return the names of the columns that a digest is of."""
    return tuple(c.name for c in table.c if c.name not in ("id", DIGEST))


@cache
def _codes(table: Table) -> tuple[tuple[str, Callable[[Any], object]], ...]:
    """Return the functions that encode values, by column: texts, and whole numbers that read back with a point."""
    texts = [(c.name, c.type.encode) for c in table.c if isinstance(c.type, AsText)]
    return *texts, *((c.name, float) for c in table.c if isinstance(c.type, Double))


class estimated_time(FunctionElement[float]):  # noqa: N801 (a function of SQL)
    """Time in an estimate; NULL where there is none, or a damaged one outside its interval."""

    type = Float()
    inherit_cache = True


@compiles(estimated_time)
def _estimated_time(element: estimated_time, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 (SQLAlchemy's)
    return compiler.process(element.clauses, **options).replace(measurements.c.estimate.name, TIME)


@compiles(estimated_time, "sqlite")
def _estimated_time_in_sqlite(element: estimated_time, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401
    # The paths are literals: SQLite uses an index of an expression only where it finds the same text.
    text = compiler.process(element.clauses, **options)
    time = _whole_time(f"CAST(json_extract({text}, '$.{{}}') AS REAL)")
    return f"CASE WHEN json_valid({text}) THEN {time} END"


def _whole_time(field: str) -> str:
    """Return SQL of the time, for a template of a field's number."""
    time, low, high = (field.format(name) for name in ("time_ns", "low_ns", "high_ns"))
    return f"CASE WHEN 0 < {low} AND {low} <= {time} AND {time} <= {high} THEN {time} END"


TIME = "time_ns"
"""Column of measurements that a PostgreSQL server computes; SQLite has an index of what it is computed from."""


def json_time(estimate: str) -> str:
    """Return PostgreSQL's SQL of the time in a column of JSON."""
    return _whole_time(f"CAST(CAST({estimate} AS JSON) ->> '{{}}' AS DOUBLE PRECISION)")


@dataclass(frozen=True, slots=True)
class Addition:
    """Statement that makes what a database of an older version is slower without."""

    name: str
    """Name of the column or index."""
    statement: str
    """SQL, which only the table's owner may run."""


TIMES = (
    Addition(
        TIME,
        f"ALTER TABLE measurements ADD COLUMN {TIME} DOUBLE PRECISION "
        f"GENERATED ALWAYS AS ({json_time('estimate')}) STORED",
    ),
    Addition(
        "measurements_by_kind",
        "CREATE INDEX measurements_by_kind ON measurements "
        f"(task_id, evidence, protocol, status, worker, created_at, {TIME}) INCLUDE (id)",
    ),
)
"""Column of times and its index on PostgreSQL."""
_KIND = measurements.c["task_id", "evidence", "protocol", "status", "worker", "created_at"]
_BY_KIND = Index("measurements_by_kind", *_KIND, estimated_time(measurements.c.estimate)).ddl_if(dialect="sqlite")
_BY_PROBLEM = Index("finals_by_problem", finals.c.problem)
_HAS_ENERGY = measurements.c.energy_joules.is_not(None)
_ENERGY = "measurements_with_energy", measurements.c.id
_WITH_ENERGY = Index(*_ENERGY, sqlite_where=_HAS_ENERGY).ddl_if(dialect="sqlite")


@cache  # naming the dialect imports it, which takes a twentieth of a second
def _with_energy_on_postgresql() -> Index:
    return Index(*_ENERGY, postgresql_where=_HAS_ENERGY).ddl_if(dialect="postgresql")


def indexes(dialect: str) -> tuple[Index, ...]:
    """Return the indexes on a dialect of SQL; a database without them, of an older version, is only slower."""
    of_dialect = (_BY_KIND, _WITH_ENERGY) if dialect == "sqlite" else (_with_energy_on_postgresql(),)
    return _BY_PROBLEM, *of_dialect
