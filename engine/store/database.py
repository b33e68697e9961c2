"""The measurement database: everything ever measured, in one SQLite file or on a PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from sqlalchemy import (
    URL,
    Connection,
    RowMapping,
    Select,
    Table,
    create_engine,
    delete,
    insert,
    inspect,
    make_url,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.exc import SQLAlchemyError

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Measurement, ReferenceLevel
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import postgres, schema, sqlite
from gemmtune.engine.store import serialization as rows
from gemmtune.engine.store.connection import Link, reason
from gemmtune.engine.store.levels import levels
from gemmtune.engine.store.tally import Tally, number_since, tally
from gemmtune.engine.store.upgrade import upgrade

__all__ = ["Database"]

_PATIENCE_SECONDS = 600.0  # a server that restarts or fails over is back within minutes
_PAGE = 1000  # rows a read holds in memory; also keeps a statement's parameters under every database's limit


class Database:
    """Measurements, each batch whole or not at all, and finals.

    One instance belongs to one thread; processes open their own, on any host that reaches the server. One writes at a
    time; the others wait for it.

    SQLite runs in WAL mode with synchronous=NORMAL: a batch that `add` returned from survives the death of the process
    at any instant. A power cut may take the last batches with it, and leaves the file whole. PostgreSQL keeps what it
    was told to keep (`synchronous_commit`); where it or the connection is lost, reads and writes begin again until it
    is back, and what it stored before it could say so is not stored twice.

    Example:
        >>> import gemmtune as gt
        >>> with gt.Database.open("measurements.db") as database:
        ...     print(len(database.tasks()))
        0
    """

    def __init__(self, link: Link) -> None:
        """Use `open`."""
        self._link = link
        self._task_ids: dict[Task, int] = {}
        self._toolchain_ids: dict[Toolchain, int] = {}

    @classmethod
    def open(
        cls, url: str | os.PathLike[str], *, create: bool = True, patience_seconds: float = _PATIENCE_SECONDS
    ) -> Database:
        """Open the database, making its tables where there are none; one of an older schema is upgraded.

        Args:
            url: a path, for SQLite, or a URL, `postgresql+psycopg://user:password@host/name`.
            create: False to refuse a database that does not exist, or is empty.
            patience_seconds: how long to wait for a server that was lost, once it has been reached.

        Raises:
            StoreError: it cannot be opened, is no gemmtune database, is of a newer schema, or cannot be
                upgraded. It is left as it was.
        """
        name = os.fspath(url)
        try:
            parsed = _url(name)
            name = parsed.render_as_string(hide_password=True)
            engine = create_engine(parsed, connect_args=postgres.connect_arguments(parsed))
        except (SQLAlchemyError, ImportError) as error:
            raise StoreError(f"cannot open database {name}: {reason(error)}") from None
        sqlite_file = engine.url.database if engine.dialect.name == "sqlite" else None
        if sqlite_file and not create and not Path(sqlite_file).exists():
            raise StoreError(f"no database {sqlite_file}; `gemmtune tune` makes one")
        sqlite.set_terms(engine)
        postgres.set_terms(engine)
        link = Link(engine, patience_seconds)
        try:
            _prepare(link, create)
        except StoreError:
            link.close()
            raise
        return cls(link)

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._link.close()

    def tell(self, listener: Callable[[str], None]) -> None:
        """Have the loss of a server, and its return, told to this one from now on: a line each, as it happens."""
        self._link.tell = listener

    def add(self, measurements: Sequence[Measurement]) -> int:
        """Store a batch in one transaction; returns the number that were new.

        There is one measurement of a task and config by one protocol, evidence and toolchain. The first stays: another
        is left out, so that two campaigns that meet on a config do not fail each other, and a batch may be given again.

        Raises:
            StoreError: the database refused; nothing of the batch is stored.
        """
        if not measurements:
            return 0
        known_tasks = {m.task: self._task_ids.get(m.task) for m in measurements}
        known_toolchains = {m.toolchain: self._toolchain_ids.get(m.toolchain) for m in measurements}

        def write(connection: Connection) -> tuple[int, dict[Task, int], dict[Toolchain, int]]:
            tasks = {t: i or _id(connection, schema.tasks, rows.task_row(t)) for t, i in known_tasks.items()}
            toolchains = {
                t: i or _id(connection, schema.toolchains, rows.toolchain_row(t)) for t, i in known_toolchains.items()
            }
            batch = [rows.measurement_row(m, tasks[m.task], toolchains[m.toolchain]) for m in measurements]
            return _insert_new(connection, batch), tasks, toolchains

        new, tasks, toolchains = self._link.write(write)
        # After the commit, so that no id of a transaction that failed is remembered.
        self._task_ids |= tasks
        self._toolchain_ids |= toolchains
        return new

    def known(self, task: Task, protocol: str, evidence: Evidence, toolchain: Toolchain) -> dict[Config, Measurement]:
        """What need not be measured again: config to measurement, failures included, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """

        def read(connection: Connection) -> dict[Config, Measurement]:
            ids = _ids(connection, task, toolchain)
            if ids is None:
                return {}
            known = connection.execute(_known(select(schema.measurements), ids, protocol, evidence)).mappings()
            found = (rows.measurement_of(row, {ids[0]: task}, {ids[1]: toolchain}) for row in known)
            return {measurement.config: measurement for measurement in found}

        return self._link.read(read)

    def configs(self, task: Task, protocol: str, evidence: Evidence, toolchain: Toolchain) -> dict[str, Config]:
        """Digest to config of what `known` holds, at a fraction of its cost.

        Raises:
            StoreError: the database cannot be read.
        """

        def read(connection: Connection) -> dict[str, Config]:
            ids = _ids(connection, task, toolchain)
            if ids is None:
                return {}
            columns = schema.measurements.c
            known = connection.execute(_known(select(columns.config_digest, columns.config), ids, protocol, evidence))
            return {digest: Config.from_json(config) for digest, config in known}

        return self._link.read(read)

    def measurements(self, task: Task | None = None) -> Iterator[Measurement]:
        """Every measurement, or those of one task, in insertion order; a page in memory at a time.

        What is added while it runs is part of it.

        Raises:
            StoreError: the database cannot be read.
        """
        columns = schema.measurements.c
        page = select(schema.measurements).order_by(columns.id).limit(_PAGE)
        tasks: dict[int, Task] = {}
        toolchains: dict[int, Toolchain] = {}
        if task is not None:
            task_id = self._link.read(lambda connection: _find(connection, schema.tasks, rows.task_row(task)))
            if task_id is None:
                return
            page = page.where(columns.task_id == task_id)
        last = 0
        while found := self._link.read(lambda connection: _rows(connection, page.where(columns.id > last))):  # noqa: B023
            if not all(row["task_id"] in tasks and row["toolchain_id"] in toolchains for row in found):
                tasks = self._link.read(_tasks)
                toolchains = self._link.read(_toolchains)
            for row in found:
                yield rows.measurement_of(row, tasks, toolchains)
            last = found[-1]["id"]

    def add_final(self, final: Final) -> None:
        """Store a final; the very same one is stored once.

        Raises:
            StoreError: the database refused.
        """
        row = rows.final_row(final)
        self._link.write(lambda connection: _add_finals(connection, [row]))

    def add_older_finals(self, finals: Iterable[Final]) -> int:
        """Store finals of another database among those held here, by their time; returns the number that were new.

        Raises:
            StoreError: the database refused; none is stored.
        """
        others = [rows.final_row(final) for final in finals]

        def write(connection: Connection) -> int:
            new = _add_finals(connection, others)
            if new:
                held = [dict(row) for row in _rows(connection, select(schema.finals).order_by(schema.finals.c.id))]
                connection.execute(delete(schema.finals))
                by_time = sorted(held, key=lambda row: str(row["created_at"]))
                ids = [row["id"] for row in held]
                connection.execute(
                    insert(schema.finals), [row | {"id": i} for i, row in zip(ids, by_time, strict=True)]
                )
            return new

        return self._link.write(write)

    def finals(
        self, problem: Problem | None = None, device: Device | None = None, protocol: str | None = None
    ) -> list[Final]:
        """Every final, or those of one problem, device or protocol, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        columns = schema.finals.c
        statement = select(schema.finals).order_by(columns.id)
        if problem is not None:
            statement = statement.where(columns.problem == rows.problem_text(problem))
        if device is not None:
            statement = statement.where(columns.device == rows.device_text(device))
        if protocol is not None:
            statement = statement.where(columns.protocol == protocol)
        return [rows.final_of(row) for row in self._link.read(lambda connection: _rows(connection, statement))]

    def tally(self) -> tuple[Tally, ...]:
        """How many measurements there are of each kind, counted by the database itself.

        Raises:
            StoreError: the database cannot be read.
        """
        return self._link.read(lambda connection: tally(connection, _tasks(connection)))

    def levels(self, problem: Problem, device: Device, protocol: str) -> tuple[ReferenceLevel, ...]:
        """The first level of each GPU and reference kernel at a problem, by any space, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        columns = schema.tasks.c
        of_problem = select(columns.id).where(
            columns.problem == rows.problem_text(problem), columns.device == rows.device_text(device)
        )

        def read(connection: Connection) -> tuple[ReferenceLevel, ...]:
            return levels(connection, connection.execute(of_problem).scalars().all(), protocol)

        return self._link.read(read)

    def number_since(self, created_at: str) -> int:
        """How many measurements were made then or later: UTC, ISO 8601 with seconds, as measurements have it.

        Raises:
            StoreError: the database cannot be read.
        """
        return self._link.read(lambda connection: number_since(connection, created_at))

    def tasks(self) -> tuple[Task, ...]:
        """Every task with a measurement, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        return tuple(self._link.read(_tasks).values())


def _prepare(link: Link, create: bool) -> None:
    """Make the tables where there are none; bring those of an older schema to the present one."""
    version = link.first(lambda connection: _version(connection, link.name))
    if version == schema.VERSION:
        return
    if version is None:
        if not create:
            raise StoreError(f"database {link.name} is empty; `gemmtune tune` fills one")
        sqlite.set_wal(link.engine)

    def write(connection: Connection) -> None:
        version = _version(connection, link.name)  # another process may have been faster
        if version is None:
            schema.METADATA.create_all(connection)
            connection.execute(insert(schema.schema_version), {"version": schema.VERSION})
        else:
            upgrade(connection, version)

    link.write(write, "open" if version is None else "upgrade")


def _version(connection: Connection, name: str) -> int | None:
    """The version of the tables, from 1 to the one known here; None where there are no tables."""
    names = inspect(connection).get_table_names()
    if not names:
        return None
    if schema.schema_version.name not in names:
        raise StoreError(f"{name} is a database of something else ({names[0]}, ...); give gemmtune its own")
    found = int(connection.execute(select(schema.schema_version.c.version)).scalar_one())
    if not 1 <= found <= schema.VERSION:
        newer = f"database {name} has schema {found}, this gemmtune knows schema {schema.VERSION}"
        raise StoreError(f"{newer}; use the gemmtune that wrote it, or another database")
    return found


def _url(text: str) -> URL:
    return postgres.with_driver(make_url(text)) if "://" in text else URL.create("sqlite", database=text)


def _rows(connection: Connection, statement: Select[Any]) -> Sequence[RowMapping]:
    return connection.execute(statement).mappings().all()


def _find(connection: Connection, table: Table, row: Mapping[str, str]) -> int | None:
    given = [table.c[name] == value for name, value in row.items() if name != "key"]
    return connection.execute(select(table.c.id).where(*given)).scalar_one_or_none()


def _id(connection: Connection, table: Table, row: Mapping[str, str]) -> int:
    found = _find(connection, table, row)
    if found is not None:
        return found
    return int(connection.execute(insert(table).returning(table.c.id), row).scalar_one())


def _ids(connection: Connection, task: Task, toolchain: Toolchain) -> tuple[int, int] | None:
    """Those of a task and a toolchain; None where nothing is held of one of them."""
    task_id = _find(connection, schema.tasks, rows.task_row(task))
    toolchain_id = _find(connection, schema.toolchains, rows.toolchain_row(toolchain))
    return None if task_id is None or toolchain_id is None else (task_id, toolchain_id)


def _known(selected: Select[Any], ids: tuple[int, int], protocol: str, evidence: Evidence) -> Select[Any]:
    """Of a task and a toolchain what was measured by a protocol, in insertion order."""
    columns = schema.measurements.c
    return (
        selected.where(columns.task_id == ids[0], columns.toolchain_id == ids[1])
        .where(columns.protocol == protocol, columns.evidence == str(evidence))
        .order_by(columns.id)
    )


def _tasks(connection: Connection) -> dict[int, Task]:
    found = connection.execute(select(schema.tasks).order_by(schema.tasks.c.id)).mappings()
    return {row["id"]: rows.task_of(row) for row in found}


def _toolchains(connection: Connection) -> dict[int, Toolchain]:
    found = connection.execute(select(schema.toolchains)).mappings()
    return {row["id"]: rows.toolchain_of(row) for row in found}


def _add_finals(connection: Connection, finals: Sequence[Mapping[str, object]]) -> int:
    columns = schema.finals.c
    new = 0
    for row in finals:
        same = select(columns.id).where(*(columns[name] == value for name, value in row.items()))
        if connection.execute(same).first() is None:
            connection.execute(insert(schema.finals), row)
            new += 1
    return new


def _insert_new(connection: Connection, batch: Sequence[Mapping[str, object]]) -> int:
    """Insert those of the measurements that are not there yet, the first of like ones; returns their number."""
    dialect = postgresql if connection.dialect.name == "postgresql" else sqlite_dialect
    statement = dialect.insert(schema.measurements).on_conflict_do_nothing()
    return int(connection.execute(statement, batch, execution_options={"preserve_rowcount": True}).rowcount)
