"""Store everything ever measured, in one SQLite file or on a PostgreSQL server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Text, delete, func, insert, select, true, type_coerce

from gemmtune.engine.io.paths import find_database
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Measurement, ReferenceLevel, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import parse_workload
from gemmtune.engine.store import queries, schema
from gemmtune.engine.store import serialization as rows
from gemmtune.engine.store.boards.records import BoardRecords
from gemmtune.engine.store.connection import Transactions
from gemmtune.engine.store.dataframe import dataframe_of
from gemmtune.engine.store.dialects import insert_new
from gemmtune.engine.store.known import KnownReader, Wanted
from gemmtune.engine.store.open_database import open_transactions
from gemmtune.engine.store.queries import MeasurementCount
from gemmtune.engine.store.row_reader import PAGE, RowReader
from gemmtune.engine.store.shared.campaigns import Campaigns
from gemmtune.engine.store.shared.claims import Claims

if TYPE_CHECKING:
    import pandas

_PATIENCE_SECONDS = 600.0  # a server that restarts or fails over is back within minutes


class Database:
    """Measurements and finals in one SQLite file or on a PostgreSQL server.

    A batch is stored whole or not at all. One instance belongs to one thread; processes open their own, on any host
    that reaches the server. One process writes at a time, and the others wait for it. Every method raises StoreError
    if the database refuses, or stays out of reach.

    SQLite runs in WAL mode with synchronous=NORMAL: a batch that `add` returned from survives the death of the process
    at any instant. A power cut may take the last batches, and leaves the file whole. PostgreSQL keeps what its
    `synchronous_commit` promises. If the server or the connection is lost, a transaction is repeated until the server
    is back; a batch that was stored before the loss is not stored twice.

    Example:
        >>> import gemmtune as gt
        >>> with gt.Database.open("measurements.db") as database:
        ...     print(len(database), database.best("16x4096x4096:bf16:nt"))
        0 None
    """

    def __init__(self, transactions: Transactions) -> None:
        """Keep a connection that `open` has prepared."""
        self.campaigns = Campaigns(transactions)
        """Campaigns that drivers run here, or ran."""
        self._transactions = transactions
        self._reader = RowReader(transactions)
        self._ids: dict[Task | Toolchain, int] = {}
        self.boards = BoardRecords(transactions)
        """Verdicts on the boards that measured, and what was withdrawn."""

    @classmethod
    def open(
        cls,
        url: str | os.PathLike[str],
        *,
        read_only: bool = False,
        patience_seconds: float = _PATIENCE_SECONDS,
        notify: Callable[[str], None] | None = None,
    ) -> Database:
        """Open a database, and make its tables where there are none.

        Args:
            url: path of a SQLite file, a campaign's folder, or a URL such as `postgresql://user:password@host/name`.
            read_only: True to write nothing, and to refuse a database that does not exist or is empty. The folder of a
                SQLite file stays as it is and need not be writable.
            patience_seconds: how long to wait for a server that was lost, once it has been reached, or for another
                process to unlock the database.
            notify: called with one line whenever the database is lost, locked or back; by default a log.

        Raises:
            StoreError: the database cannot be opened, is no gemmtune database, or has another schema. It is left as it
                was.
        """
        path = find_database(url, made=not read_only)
        return cls(open_transactions(path, read_only, patience_seconds, notify))

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        try:
            if kind is None:
                self._transactions.check()
        finally:
            self.close()

    def __len__(self) -> int:
        """Return the number of measurements, failures included."""
        return self._number(true())

    def __bool__(self) -> bool:
        """Return True: an empty database is a database."""
        return True

    def close(self) -> None:
        """Close every connection to the database."""
        self._transactions.engine.dispose()

    def stop_waiting(self) -> None:
        """Wait no longer for a server that is lost or a lock: the process is told to end, or has waited long enough."""
        self._transactions.patience_seconds = 0.0

    def send_notices_to(self, listener: Callable[[str], None]) -> None:
        """Call `listener` with one line whenever the database is lost, locked or back, from now on."""
        self._transactions.notify = listener

    def claims(self) -> Claims | None:
        """Return claims for a driver of its own; None for a SQLite file, which has one driver."""
        return Claims(self._transactions) if self._transactions.engine.dialect.name == "postgresql" else None

    def add(self, measurements: Sequence[Measurement]) -> int:
        """Store a batch in one transaction, and return how many of its measurements were new.

        The database holds one measurement per task, config, protocol, evidence and toolchain. The first one stays: two
        campaigns that meet on a config do not fail each other, and a batch may be added again. One that was read and
        found damaged is replaced.
        """
        if not measurements:
            return 0
        records = dict.fromkeys(record for m in measurements for record in (m.task, m.toolchain))

        def write(connection: Connection) -> tuple[int, dict[Task | Toolchain, int]]:
            ids = {record: self._ids.get(record) or _stored_id(connection, record) for record in records}
            batch = [rows.measurement_row(m, ids[m.task], ids[m.toolchain]) for m in measurements]
            if self._reader.damaged:
                digests = {m.config.digest for m in measurements}
                replaced = [number for (_, number), digest in self._reader.damaged.items() if digest in digests]
                of_tasks = schema.measurements.c.task_id.in_(ids.values())
                connection.execute(delete(schema.measurements).where(schema.measurements.c.id.in_(replaced), of_tasks))
            return insert_new(connection, schema.untyped(schema.measurements), batch), ids

        new, ids = self._transactions.write(write)
        self._ids |= ids  # after the commit: the ids of a transaction that failed do not exist
        return new

    def best(
        self,
        problem: Workload | str,
        *,
        space: str | None = None,
        device: str | None = None,
        protocol: str | None = None,
    ) -> Measurement | None:
        """Return the fastest ok measurement of a problem, or None if there is none.

        Measured times are preferred to replayed ones, and those to estimated ones.

        Args:
            problem: the problem, or its text such as `16x4096x4096:bf16:nt`.
            space: name of a space, to leave out all others; the vendor library is the space `aten`.
            device: SKU of a GPU such as `H200`, to leave out all others.
            protocol: name of a timing protocol, to leave out all others.

        Raises:
            ProblemError: the text is no problem.
            UsageError: several protocols timed the problem; their times do not compare, so `protocol` must name one.
        """
        workload = parse_workload(problem) if isinstance(problem, str) else problem
        columns = schema.measurements.c

        def read(connection: Connection, damaged: Sequence[int]) -> Row[Any] | None:
            tasks = queries.task_ids(workload, space, device)
            for evidence in Evidence:
                held = select(columns.protocol).where(columns.task_id.in_(tasks), columns.evidence == evidence)
                found = set(connection.execute(held.where(columns.estimate.is_not(None)).distinct()).scalars())
                if len(found) > 1 and protocol is None:
                    names = ", ".join(sorted(found))
                    raise UsageError(f"{workload.name} was timed by several protocols: choose protocol= from {names}")
                chosen = protocol or next(iter(found), "")
                best = queries.fastest(tasks, evidence, chosen, damaged)
                for row in connection.execute(queries.MEASUREMENTS.where(columns.id == best.scalar_subquery())):
                    return row
            return None

        damaged: list[int] = []
        while (row := self._transactions.read(partial(read, damaged=damaged))) is not None:
            for measurement in self._reader.measurements([row]):
                return measurement
            damaged.append(row.id)
        return None

    def measurements(
        self, workload: Task | Workload | str | None = None, *, space: str | None = None, device: str | None = None
    ) -> Iterator[Measurement]:
        """Yield measurements in insertion order, failures included, with one page in memory at a time.

        Measurements that are added meanwhile are yielded too.

        Args:
            workload: a task, or a problem, or a problem's text such as `16x4096x4096:bf16:nt`; None for all.
            space: name of a space, to leave out all others.
            device: SKU of a GPU such as `H200`, to leave out all others.

        Raises:
            ProblemError: the text is no problem.
        """
        chosen = parse_workload(workload) if isinstance(workload, str) else workload
        statement = queries.MEASUREMENTS
        if (chosen, space, device) != (None, None, None):
            statement = statement.where(schema.measurements.c.task_id.in_(queries.task_ids(chosen, space, device)))
        return self._all_measurements(statement)

    def measurements_with_energy(self) -> Iterator[Measurement]:
        """Yield the measurements that have an energy, in insertion order."""
        return self._all_measurements(queries.MEASUREMENTS.where(schema.measurements.c.energy_joules.is_not(None)))

    def measurements_of_ids(self, ids: Sequence[int]) -> list[Measurement]:
        """Return the measurements of these ids from `keys_by_task`, in insertion order."""
        pages = (schema.measurements.c.id.in_(ids[start : start + PAGE]) for start in range(0, len(ids), PAGE))
        statements = (queries.MEASUREMENTS.where(page).order_by(schema.measurements.c.id) for page in pages)
        found = map(self._reader.rows, statements)
        return [measurement for rows in found for measurement in self._reader.measurements(rows)]

    def fastest_of_each(self) -> list[Measurement]:
        """Return the fastest measurement of each task, evidence and protocol, the first of equal ones."""
        before, on_server = -1, self._transactions.engine.dialect.name == "postgresql"
        found: list[Measurement] = []
        while self.damaged > before:  # the next best stands in for a damaged one
            before = self.damaged
            ids = self._reader.rows(queries.fastest_of_each(self._damaged_ids(), has_arrays=on_server))
            found = self.measurements_of_ids([number for (number,) in ids])
        return found

    def keys_by_task(self) -> Iterator[tuple[Task | None, dict[tuple[str, ...], int]]]:
        """Yield each task, None for a damaged one, with the ids of its measurements by what tells them apart."""
        ids = [number for (number,) in self._reader.rows(select(schema.tasks.c.id).order_by(schema.tasks.c.id))]
        for start in range(0, len(ids), PAGE):
            tasks = self._reader.tasks(set(ids[start : start + PAGE]))
            for number in ids[start : start + PAGE]:
                yield tasks[number], self._transactions.read(partial(_keys, task_id=number))

    def keys_of(self, task: Task) -> dict[tuple[str, ...], int]:
        """Return the ids of a task's measurements by what tells them apart."""
        return self._transactions.read(lambda connection: _keys(connection, _find_id(connection, task)))

    def _all_measurements(self, statement: Select[Any]) -> Iterator[Measurement]:
        for found in self._reader.pages(statement, schema.measurements):
            yield from self._reader.measurements(found)

    def to_dataframe(
        self, workload: Task | Workload | str | None = None, *, space: str | None = None, device: str | None = None
    ) -> pandas.DataFrame:
        """Return `measurements` as a pandas DataFrame, one row per measurement and one column per parameter.

        Raises:
            ProblemError: the text is no problem.
            ToolchainMissing: pandas is not installed.
        """
        return dataframe_of(self.measurements(workload, space=space, device=device))

    def known(
        self, task: Task, protocol: str, evidence: Evidence, toolchain: Toolchain, digests: Sequence[str] | None = None
    ) -> dict[Config, Measurement]:
        """Return what need not be measured again, failures included, by config and in insertion order; see `Wanted`."""
        (found,) = self.known_of_each([Wanted(task, protocol, toolchain, digests)], evidence)
        return found

    def known_of_each(self, wanted: Iterable[Wanted], evidence: Evidence) -> Iterator[dict[Config, Measurement]]:
        """Yield the measurements of each that is wanted, by config and in insertion order, some tasks at a time."""
        return KnownReader(self._transactions, self._reader, self._ids).known(wanted, evidence)

    def searches(self, keys: Sequence[str]) -> dict[str, list[str]]:
        """Return the digests of the configs that finished searches asked, by the searches' keys."""
        columns = schema.asked.c
        texts = type_coerce(columns.digests, Text).label(columns.digests.name)
        pages = (columns.campaign.in_(keys[start : start + PAGE]) for start in range(0, len(keys), PAGE))
        found = (row for page in pages for row in self._reader.rows(select(columns.campaign, texts).where(page)))
        return {row.campaign: row.digests.split() for row in found if isinstance(row.digests, str)}

    def add_searches(self, searches: Mapping[str, Sequence[str]]) -> None:
        """Store the digests of the configs that finished searches asked, by the searches' keys."""
        new = [{"campaign": key, "search": 0, "digests": digests} for key, digests in searches.items()]

        def write(connection: Connection) -> None:
            connection.execute(delete(schema.asked).where(schema.asked.c.campaign.in_(searches)))
            connection.execute(insert(schema.asked), new)

        self._transactions.write(write)

    def add_final(self, final: Final) -> bool:
        """Store a final, and return whether it was new; an equal one is stored once."""
        return bool(self.add_finals([final]))

    def add_finals(self, finals: Sequence[Final]) -> int:
        """Store finals in one transaction, and return how many were new; equal ones are stored once."""
        found = [rows.final_row(final) for final in finals]

        def write(connection: Connection) -> int:
            new = [row for row in found if connection.execute(queries.EQUAL_FINAL, row).first() is None]
            for row in new:
                connection.execute(insert(schema.untyped(schema.finals)), row)
            return len(new)

        return self._transactions.write(write)

    def all_finals(self) -> Iterator[Final]:
        """Yield every final in insertion order, with one page in memory at a time."""
        for found in self._reader.pages(select(*schema.stored(schema.finals)), schema.finals):
            yield from self._reader.records(schema.finals, found, rows.final_of)

    def finals(
        self, problem: Workload | None = None, device: Device | None = None, protocol: str | None = None
    ) -> list[Final]:
        """Return every final of a problem, device and protocol, by time and then in insertion order."""
        columns = schema.finals.c
        statement = select(*schema.stored(schema.finals)).order_by(columns.created_at, columns.id)
        for column, wanted in ((columns.problem, problem), (columns.device, device), (columns.protocol, protocol)):
            if wanted is not None:
                statement = statement.where(column == wanted)
        return list(self._reader.records(schema.finals, self._reader.rows(statement), rows.final_of))

    def number_of_finals(self) -> int:
        """Return the number of finals."""
        (number,) = self._reader.rows(select(func.count()).select_from(schema.finals))[0]
        return int(number)

    def tasks(self) -> tuple[Task, ...]:
        """Return every task with a measurement, in insertion order."""
        found = self._reader.rows(select(*schema.stored(schema.tasks)).order_by(schema.tasks.c.id))
        return tuple(self._reader.records(schema.tasks, found, rows.task_of))

    def counts(self) -> tuple[MeasurementCount, ...]:
        """Count the measurements of each task, evidence, protocol, status and worker.

        Those with a damaged time are left out, and those that were read before and found damaged.
        """
        found = self._reader.rows(queries.counts(self._damaged_ids()))
        if any(row.status == Status.OK and row.timed < row.number for row in found):
            list(self._all_measurements(queries.UNTIMED))  # names them
        tasks = self._reader.tasks({row.task_id for row in found})
        return tuple(
            self._reader.records(schema.measurements, found, lambda row: rows.count_of(row, tasks[row.task_id]))
        )

    def number_since(self, created_at: str) -> int:
        """Count the measurements made at that time or later: UTC, ISO 8601 with seconds."""
        return self._number(schema.measurements.c.created_at >= created_at)

    def levels(self, problem: Workload, device: Device, protocol: str) -> tuple[ReferenceLevel, ...]:
        """Return the first level of each GPU and reference kernel at a problem, by any space, in insertion order."""
        columns = schema.tasks.c
        tasks = select(columns.id).where(columns.problem == problem, columns.device == device)
        ids = self._reader.rows(queries.levels(tasks, protocol))
        firsts = self.measurements_of_ids([number for (number,) in ids])
        return tuple(m.estimate.level for m in firsts if m.estimate is not None and m.estimate.level is not None)

    @property
    def damaged(self) -> int:
        """Number of damaged rows that were met and left out."""
        return len(self._reader.damaged)

    def _damaged_ids(self) -> list[int]:
        return [number for table, number in self._reader.damaged if table == schema.measurements.name]

    def _number(self, condition: ColumnElement[bool]) -> int:
        (number,) = self._reader.rows(select(func.count()).select_from(schema.measurements).where(condition))[0]
        return int(number)


def _keys(connection: Connection, task_id: int | None) -> dict[tuple[str, ...], int]:
    found = connection.execute(queries.KEYS, {"task_id": task_id})
    return {row[1:]: row[0] for row in map(tuple, found)}


def _find_id(connection: Connection, record: Task | Toolchain) -> int | None:
    """Return the id of a task or toolchain; None where it is not stored."""
    query = queries.TASK_ID if isinstance(record, Task) else queries.TOOLCHAIN_ID
    found: int | None = connection.execute(query, rows.identity(record)).scalar()
    return found


def _stored_id(connection: Connection, record: Task | Toolchain) -> int:
    """Return the id of a task or toolchain, which is stored if it is new."""
    found = _find_id(connection, record)
    if found is not None:
        return found
    table = schema.tasks if isinstance(record, Task) else schema.toolchains
    new = schema.untyped(table)
    row = schema.encoded(table, rows.identity(record))
    return int(connection.execute(insert(new).returning(new.c.id), row).scalar_one())
