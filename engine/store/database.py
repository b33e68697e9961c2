"""The measurement database: everything ever measured, in one SQLite file or any database SQLAlchemy reaches."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

from sqlalchemy import URL, Connection, Engine, Table, create_engine, insert, inspect, make_url, select
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import rows, schema, sqlite
from gemmtune.engine.store.upgrade import upgrade

__all__ = ["Database"]

_PAGE = 1000  # rows a read holds in memory; also keeps a statement's parameters under every database's limit


class Database:
    """Measurements, each batch whole or not at all, and finals.

    One instance belongs to one thread; processes open their own.

    SQLite runs in WAL mode with synchronous=NORMAL: a batch that `add` returned from survives the death of the process
    at any instant. A power cut may take the last batches with it, and leaves the file whole.
    """

    def __init__(self, engine: Engine) -> None:
        """Use `open`."""
        self._engine = engine
        self._name = engine.url.render_as_string(hide_password=True)
        self._task_ids: dict[Task, int] = {}
        self._toolchain_ids: dict[Toolchain, int] = {}

    @classmethod
    def open(cls, url: str | os.PathLike[str], *, create: bool = True) -> Database:
        """Open the database, making it where there is none and `create` allows; one of an older schema is upgraded.

        Args:
            url: a path, for SQLite, or an SQLAlchemy URL, `postgresql+psycopg://host/name`.
            create: False to refuse a database that does not exist.

        Raises:
            StoreError: it cannot be opened, is no gemmtune database, is of a newer schema, or cannot be
                upgraded. It is left as it was.
        """
        name = os.fspath(url)
        try:
            parsed = _url(name)
            name = parsed.render_as_string(hide_password=True)
            engine = create_engine(parsed)
        except (SQLAlchemyError, ImportError) as error:
            raise StoreError(f"cannot open database {name}: {_reason(error)}") from None
        sqlite_file = engine.url.database if engine.dialect.name == "sqlite" else None
        if sqlite_file and not create and not Path(sqlite_file).exists():
            raise StoreError(f"no database {sqlite_file}; `gemmtune tune` makes one")
        sqlite.set_terms(engine)
        database = cls(engine)
        try:
            with database._errors("open"):
                database._prepare(create)
        except StoreError:
            database.close()
            raise
        return database

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection."""
        self._engine.dispose()

    def add(self, measurements: Sequence[Measurement]) -> int:
        """Store a batch in one transaction; returns the number that were new.

        There is one measurement of a task and config by one protocol, evidence and toolchain. The first stays: another
        is left out, so that two campaigns that meet on a config do not fail each other.

        Raises:
            StoreError: the database refused; nothing of the batch is stored.
        """
        with self._errors("write to"), self._writing() as connection:
            task_ids = {m.task: self._task_ids.get(m.task) for m in measurements}
            toolchain_ids = {m.toolchain: self._toolchain_ids.get(m.toolchain) for m in measurements}
            tasks = {t: i or _id(connection, schema.tasks, rows.task_row(t)) for t, i in task_ids.items()}
            toolchains = {
                t: i or _id(connection, schema.toolchains, rows.toolchain_row(t)) for t, i in toolchain_ids.items()
            }
            batch = [rows.measurement_row(m, tasks[m.task], toolchains[m.toolchain]) for m in measurements]
            new = _without_known(connection, batch)
            if new:
                connection.execute(insert(schema.measurements), new)
        # After the commit, so that no id of a transaction that failed is remembered.
        self._task_ids |= tasks
        self._toolchain_ids |= toolchains
        return len(new)

    def known(self, task: Task, protocol: str, evidence: Evidence, toolchain: Toolchain) -> dict[Config, Measurement]:
        """What need not be measured again: config to measurement, failures included, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._errors("read"), self._engine.connect() as connection:
            task_id = _find(connection, schema.tasks, rows.task_row(task))
            toolchain_id = _find(connection, schema.toolchains, rows.toolchain_row(toolchain))
            if task_id is None or toolchain_id is None:
                return {}
            columns = schema.measurements.c
            statement = (
                select(schema.measurements)
                .where(columns.task_id == task_id, columns.toolchain_id == toolchain_id)
                .where(columns.protocol == protocol, columns.evidence == str(evidence))
                .order_by(columns.id)
            )
            known = connection.execute(statement).mappings()
            found = (rows.measurement_of(row, {task_id: task}, {toolchain_id: toolchain}) for row in known)
            return {measurement.config: measurement for measurement in found}

    def measurements(self, task: Task | None = None) -> Iterator[Measurement]:
        """Every measurement, or those of one task, in insertion order; a page in memory at a time.

        What is added while it runs is part of it.

        Raises:
            StoreError: the database cannot be read.
        """
        columns = schema.measurements.c
        page = select(schema.measurements).order_by(columns.id).limit(_PAGE)
        last = 0
        tasks: dict[int, Task] = {}
        toolchains: dict[int, Toolchain] = {}
        while True:
            with self._errors("read"), self._engine.connect() as connection:
                if task is not None and not tasks:
                    task_id = _find(connection, schema.tasks, rows.task_row(task))
                    if task_id is None:
                        return
                    tasks = {task_id: task}
                    page = page.where(columns.task_id == task_id)
                found = connection.execute(page.where(columns.id > last)).mappings().all()
                if not all(row["task_id"] in tasks and row["toolchain_id"] in toolchains for row in found):
                    tasks = _tasks(connection)
                    toolchains = _toolchains(connection)
            if not found:
                return
            for row in found:
                yield rows.measurement_of(row, tasks, toolchains)
            last = found[-1]["id"]

    def add_final(self, final: Final) -> None:
        """Store a final.

        Raises:
            StoreError: the database refused.
        """
        with self._errors("write to"), self._writing() as connection:
            connection.execute(insert(schema.finals), rows.final_row(final))

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
        with self._errors("read"), self._engine.connect() as connection:
            return [rows.final_of(row) for row in connection.execute(statement).mappings()]

    def tasks(self) -> tuple[Task, ...]:
        """Every task with a measurement, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        with self._errors("read"), self._engine.connect() as connection:
            return tuple(_tasks(connection).values())

    def _prepare(self, create: bool) -> None:
        with self._engine.connect() as connection:
            version = self._version(connection)
        if version == schema.VERSION:
            return
        if version is None:
            if not create:
                raise StoreError(f"database {self._name} is empty; `gemmtune tune` fills one")
            sqlite.set_wal(self._engine)
        with self._errors("open" if version is None else "upgrade"), self._writing() as connection:
            version = self._version(connection)  # another process may have been faster
            if version is None:
                schema.METADATA.create_all(connection)
                connection.execute(insert(schema.schema_version), {"version": schema.VERSION})
            else:
                upgrade(connection, version)

    def _version(self, connection: Connection) -> int | None:
        """The version of the tables, from 1 to the one known here; None where there are no tables."""
        names = inspect(connection).get_table_names()
        if not names:
            return None
        if schema.schema_version.name not in names:
            raise StoreError(f"{self._name} is a database of something else ({names[0]}, ...); give gemmtune its own")
        found = int(connection.execute(select(schema.schema_version.c.version)).scalar_one())
        if not 1 <= found <= schema.VERSION:
            newer = f"database {self._name} has schema {found}, this gemmtune knows schema {schema.VERSION}"
            raise StoreError(f"{newer}; use the gemmtune that wrote it, or another database")
        return found

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with self._engine.connect() as connection:
            connection.execution_options(**sqlite.WRITES)
            with connection.begin():
                yield connection

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except SQLAlchemyError as error:
            raise StoreError(f"cannot {doing} database {self._name}: {_reason(error)}") from error


def _url(text: str) -> URL:
    return make_url(text) if "://" in text else URL.create("sqlite", database=text)


def _reason(error: Exception) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    if text == "unable to open database file":
        return f"{text}; its folder must exist and be writable"
    return text


def _find(connection: Connection, table: Table, row: Mapping[str, str]) -> int | None:
    given = [table.c[name] == value for name, value in row.items() if name != "key"]
    return connection.execute(select(table.c.id).where(*given)).scalar_one_or_none()


def _id(connection: Connection, table: Table, row: Mapping[str, str]) -> int:
    found = _find(connection, table, row)
    if found is not None:
        return found
    return int(connection.execute(insert(table).returning(table.c.id), row).scalar_one())


def _tasks(connection: Connection) -> dict[int, Task]:
    found = connection.execute(select(schema.tasks).order_by(schema.tasks.c.id)).mappings()
    return {row["id"]: rows.task_of(row) for row in found}


def _toolchains(connection: Connection) -> dict[int, Toolchain]:
    found = connection.execute(select(schema.toolchains)).mappings()
    return {row["id"]: rows.toolchain_of(row) for row in found}


def _without_known(connection: Connection, batch: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    columns = schema.measurements.c
    unique = (columns.task_id, columns.config_digest, columns.protocol, columns.evidence, columns.toolchain_id)
    known: set[tuple[object, ...]] = set()
    for start in range(0, len(batch), _PAGE):
        page = batch[start : start + _PAGE]
        statement = select(*unique).where(
            columns.task_id.in_({row["task_id"] for row in page}),
            columns.config_digest.in_([row["config_digest"] for row in page]),
        )
        known.update(tuple(row) for row in connection.execute(statement))
    new = []
    for row in batch:
        key = tuple(row[column.name] for column in unique)
        if key not in known:
            known.add(key)
            new.append(row)
    return new
