"""Define the tables of the database."""

from __future__ import annotations

from functools import lru_cache

from sqlalchemy import Column, Double, ForeignKey, Integer, MetaData, Table, Text, UniqueConstraint

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.store import column_types as types
from gemmtune.engine.store.column_types import AsText

__all__ = ["METADATA", "VERSION", "finals", "measurements", "schema_version", "tasks", "toolchains"]

VERSION = 3
"""Version of the tables below; a change to them adds 1. Databases of other versions are refused."""

_NUMBERS = AsText(types.compact_json, lambda text: types.numbers_of(types.decode_json(text)))
_CONFIG = AsText(lambda config: config.json, lru_cache(2**14)(Config.from_json))  # tasks share configs and hashes

METADATA = MetaData()

schema_version = Table(
    "schema_version",
    METADATA,
    Column("version", Integer, primary_key=True, autoincrement=False),
)
"""One row that holds the VERSION of the tables."""

tasks = Table(
    "tasks",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("key", Text, nullable=False),  # for people; the three columns below are the task
    Column("space", Text, nullable=False),
    Column("problem", types.PROBLEM, nullable=False),
    Column("device", types.DEVICE, nullable=False),
    UniqueConstraint("space", "problem", "device"),
)
"""One row per task. Problem and device are JSON of the fields that make records equal, without weight and source."""

toolchains = Table(
    "toolchains",
    METADATA,
    Column("id", Integer, primary_key=True),
    Column("versions", types.TOOLCHAIN, nullable=False, unique=True),
)
"""One row per toolchain, as JSON of its (package, version) pairs."""

measurements = Table(
    "measurements",
    METADATA,
    Column("id", Integer, primary_key=True),  # grows with insertion
    Column("task_id", ForeignKey(tasks.c.id), nullable=False),
    Column("config_digest", Text, nullable=False),
    Column("protocol", Text, nullable=False),
    Column("evidence", AsText(str, Evidence), nullable=False),
    Column("toolchain_id", ForeignKey(toolchains.c.id), nullable=False),
    Column("config", _CONFIG, nullable=False),
    Column("status", AsText(str, Status), nullable=False),
    Column("reason", AsText(types.storable, str), nullable=False),
    Column("samples_ns", _NUMBERS, nullable=False),
    Column("error_norm", AsText(repr, float)),  # a wrong result's norm may be NaN, which SQLite turns into NULL
    Column("before", types.DEVICE_STATE),
    Column("after", types.DEVICE_STATE),
    Column("resources", types.RESOURCES),
    Column("build_seconds", Double),
    Column("worker", Text, nullable=False),
    Column("created_at", Text, nullable=False),
    Column("estimate", types.ESTIMATE),
    Column("outliers", _NUMBERS, nullable=False),
    Column("drift", Double, nullable=False),
    Column("energy_joules", Double),
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
)
"""One row per final. Problem and device are as in `tasks`; the content is JSON of the finalists and the failed ones."""
