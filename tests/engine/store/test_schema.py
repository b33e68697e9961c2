"""Tables as files and servers hold them: what a row must have, what may stand once, and how a time is read in SQL."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import select
from sqlalchemy.dialects import postgresql
from sqlalchemy.schema import CreateIndex, CreateTable

from gemmtune.engine.store import schema
from gemmtune.engine.store.database import Database

MAY_BE_EMPTY = {
    "schema_version": set(),
    "tasks": {"digest"},
    "toolchains": {"digest"},
    "measurements": {
        "error_norm",
        "before",
        "after",
        "resources",
        "build_seconds",
        "estimate",
        "energy_joules",
        "digest",
    },
    "finals": {"digest"},
    "asked": set(),
    "campaigns": {"gain_per_hour", "cost"},
    "boards": set(),
}
ONCE = {
    "tasks": [["space", "problem", "device"]],
    "toolchains": [["versions"]],
    "measurements": [["task_id", "config_digest", "protocol", "evidence", "toolchain_id"]],
    "asked": [["campaign", "search"]],
    "boards": [["board", "worker", "trust", "at"]],
}
DOUBLES = {
    "measurements": {"build_seconds", "drift", "energy_joules"},
    "campaigns": {"started", "seen", "gain", "gain_per_hour", "cost", "core_seconds"}
    | {"gpu_seconds_held", "gpu_seconds_busy"},
}
KEYS = {name: ["id"] for name in (*schema.RECORDS, "boards", "campaigns")} | {
    "schema_version": ["version"],
    "asked": ["campaign", "search"],
}


@pytest.fixture
def connection(tmp_path):
    Database.open(tmp_path / "m.db").close()
    with closing(sqlite3.connect(tmp_path / "m.db")) as opened:
        yield opened


def test_every_table_says_what_a_row_must_have_and_what_stands_once(connection):
    for name, empty in MAY_BE_EMPTY.items():
        columns = connection.execute(f"PRAGMA table_info({name})").fetchall()
        assert {column for _, column, _, required, *_ in columns if not required} == empty, name
        assert [column for _, column, *_, key in columns if key] == KEYS[name]
        kinds = {column: kind for _, column, kind, *_ in columns}
        numbers = {column for column, kind in kinds.items() if kind == "DOUBLE"}
        assert numbers == DOUBLES.get(name, set())
        indexes = [row for row in connection.execute(f"PRAGMA index_list({name})") if row[2]]
        once = [[row[2] for row in connection.execute(f"PRAGMA index_info({index[1]})")] for index in indexes]
        assert once == ONCE.get(name, []), name


def test_a_measurement_belongs_to_a_task_and_a_toolchain(connection):
    found = connection.execute("PRAGMA foreign_key_list(measurements)").fetchall()
    assert sorted(row[2:5] for row in found) == [("tasks", "task_id", "id"), ("toolchains", "toolchain_id", "id")]
    withdrawn = {"withdrawn_measurements", "withdrawn_finals"}
    assert schema.METADATA.tables.keys() == MAY_BE_EMPTY.keys() | withdrawn


def test_a_withdrawn_row_has_every_column_that_it_had_and_stands_beside_equal_ones(connection):
    for name in ("measurements", "finals"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
        held = [row[1] for row in connection.execute(f"PRAGMA table_info(withdrawn_{name})")]
        assert held == [*columns, "why", "withdrawn_at"]
        assert not [row for row in connection.execute(f"PRAGMA index_list(withdrawn_{name})") if row[2]]


@pytest.mark.parametrize(
    ("estimate", "time_ns"),
    [
        ('{"time_ns":5.0,"low_ns":4.0,"high_ns":6.0}', 5.0),
        ('{"time_ns":5.0,"low_ns":5.0,"high_ns":5.0}', 5.0),
        ('{"time_ns":5.0,"low_ns":5.1,"high_ns":6.0}', None),
        ('{"time_ns":5.0,"low_ns":4.0,"high_ns":4.9}', None),
        ('{"time_ns":5.0,"low_ns":0.0,"high_ns":6.0}', None),
        ('{"time_ns":5.0,"low_ns":-1.0,"high_ns":6.0}', None),
        ('{"time_ns":5.0,"low_ns":4.0}', None),
        ('{"time_ns":', None),
        (None, None),
    ],
)
def test_sqlite_reads_a_time_that_is_within_its_interval(connection, estimate, time_ns):
    text = str(select(schema.estimated_time(schema.measurements.c.estimate)).compile())
    statement = str(select(schema.estimated_time(schema.measurements.c.estimate)).compile(dialect=_sqlite()))
    assert statement != text
    held = (
        statement.replace("measurements.estimate", ":estimate")
        .partition("\nFROM")[0]
        .replace(" AS estimated_time_1", "")
    )
    assert connection.execute(held, {"estimate": estimate}).fetchone()[0] == time_ns


def _sqlite():
    from sqlalchemy.dialects import sqlite

    return sqlite.dialect()


def test_postgresql_computes_times_of_json_in_a_column_and_has_its_own_indexes():
    dialect = postgresql.dialect()
    found = str(select(schema.estimated_time(schema.measurements.c.estimate)).compile(dialect=dialect))
    assert "SELECT measurements.time_ns AS" in found
    time, low, high = (
        f"CAST(CAST(estimate AS JSON) ->> '{name}' AS DOUBLE PRECISION)" for name in ("time_ns", "low_ns", "high_ns")
    )
    column, index = (each.statement for each in schema.TIMES)
    assert f"(CASE WHEN 0 < {low} AND {low} <= {time} AND {time} <= {high} THEN {time} END) STORED" in column
    assert "(task_id, evidence, protocol, status, worker, created_at, time_ns) INCLUDE (id)" in index
    indexes = [str(CreateIndex(each).compile(dialect=dialect)) for each in schema.indexes("postgresql")]
    assert indexes == [
        "CREATE INDEX finals_by_problem ON finals (problem)",
        "CREATE INDEX measurements_with_energy ON measurements (id) WHERE energy_joules IS NOT NULL",
    ]
    tables = {name: str(CreateTable(table).compile(dialect=dialect)) for name, table in schema.METADATA.tables.items()}
    assert all("id SERIAL NOT NULL" in tables[name] for name in schema.RECORDS)
    assert "SERIAL" not in tables["asked"] + tables["schema_version"]
    assert tables["measurements"].count("DOUBLE PRECISION") == 3


def test_sqlite_has_an_index_by_kind_and_postgresql_none():
    names = {dialect: [each.name for each in schema.indexes(dialect)] for dialect in ("sqlite", "postgresql")}
    assert names == {
        "sqlite": ["finals_by_problem", "measurements_by_kind", "measurements_with_energy"],
        "postgresql": ["finals_by_problem", "measurements_with_energy"],
    }
