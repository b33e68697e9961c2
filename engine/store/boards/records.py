"""Store verdicts on boards, and withdraw what a board measured."""

from collections.abc import Collection, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Connection, Table, and_, delete, func, insert, inspect, literal, or_, select, union

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict
from gemmtune.engine.seams.codec import decoded
from gemmtune.engine.store import queries, schema
from gemmtune.engine.store.boards.tables import WITHDRAWN, boards
from gemmtune.engine.store.column_types import storable
from gemmtune.engine.store.connection import Transactions
from gemmtune.engine.store.dialects import insert_new

_FIELDS = tuple(field.name for field in fields(BoardVerdict))


class BoardRecords:
    """The verdicts on boards in one database, and the rows that were withdrawn."""

    def __init__(self, transactions: Transactions) -> None:
        """Read and write by these transactions."""
        self._transactions = transactions

    def add(self, verdict: BoardVerdict) -> None:
        """Store a verdict as the board's last, even where an equal one of the same second is stored before another.

        Raises:
            StoreError: the database refused.
        """
        row = {name: storable(str(getattr(verdict, name))) for name in _FIELDS}
        equal = and_(*(boards.c[name] == row[name] for name in ("board", "worker", "trust", "at")))

        def write(connection: Connection) -> None:
            connection.execute(delete(boards).where(equal))
            insert_new(connection, schema.untyped(boards), [row])

        self._transactions.write(write)

    def verdicts(self) -> dict[str, BoardVerdict]:
        """Return the last verdict on each board, by its UUID, in the order in which they were first seen.

        Raises:
            StoreError: the database cannot be read.
        """
        found: dict[str, BoardVerdict] = {}
        for row in self._transactions.read(_rows):
            found[row["board"]] = decoded(BoardVerdict, row)
        return found

    def names(self) -> list[str]:
        """Return the UUIDs of the boards that measured, or that a verdict is on, sorted.

        Raises:
            StoreError: the database cannot be read.
        """

        def read(connection: Connection) -> list[str]:
            measured = connection.execute(select(queries.BOARD[schema.measurements]).distinct()).scalars()
            return sorted({*filter(None, measured), *(row["board"] for row in _rows(connection))})

        return self._transactions.read(read)

    def withdrawn(self, devices: Collection[Device] = ()) -> tuple[int, int]:
        """Return the numbers of withdrawn measurements and finals, for all devices where none is given.

        Raises:
            StoreError: they cannot be read.
        """

        def number(connection: Connection, table: Table) -> int:
            if not inspect(connection).has_table(table.name):
                return 0
            statement = select(func.count()).select_from(table)
            if devices:
                of = select(schema.tasks.c.id).where(schema.tasks.c.device.in_(devices))
                is_final = table is WITHDRAWN[schema.finals]
                statement = statement.where(table.c.device.in_(devices) if is_final else table.c.task_id.in_(of))
            return int(connection.execute(statement).scalar_one())

        measurements, finals = (self._transactions.read(partial(number, table=each)) for each in WITHDRAWN.values())
        return measurements, finals

    def withdrew(self, task: Task, digest: str) -> bool:
        """Return whether a measurement of a config was withdrawn; raises StoreError if it cannot be read."""
        columns = WITHDRAWN[schema.measurements].c
        found = select(func.count()).where(columns.task_id.in_(queries.task_ids(task)), columns.config_digest == digest)
        return bool(self._transactions.read(lambda connection: connection.execute(found).scalar_one()))

    def withdrawn_from(self) -> set[tuple[str, str]]:
        """Return workers of withdrawn rows and their UTC times; raises StoreError if they cannot be read."""
        statement = union(*(select(each.c.worker, each.c.created_at) for each in WITHDRAWN.values()))
        return self._transactions.read(lambda connection: {tuple(row) for row in connection.execute(statement)})

    def withdraw(self, board: str, why: str, *, since: str = "", workers: Sequence[str] = ()) -> tuple[int, int]:
        """Take what a board measured out of the database's use; return the numbers of its measurements and finals.

        The rows move to tables of their own. Searches that had finished ask their samplers again.

        Args:
            board: UUID of the GPU.
            why: reason for people.
            since: UTC time, ISO 8601, from which on; empty for all.
            workers: workers that measured on the board, besides those that the database knows: a failure has no UUID.

        Raises:
            StoreError: the database refused.
        """
        at = datetime.now(UTC).isoformat(timespec="seconds")

        def write(connection: Connection) -> tuple[int, int]:
            measured_here = queries.BOARD[schema.measurements] == board
            names = {*workers, *connection.execute(select(boards.c.worker).where(boards.c.board == board)).scalars()}
            by_row = select(schema.measurements.c.worker).where(measured_here).distinct()
            names |= {*connection.execute(by_row).scalars()}
            moved = {}
            for table, withdrawn in WITHDRAWN.items():
                by_worker = queries.BOARD[table].is_(None) & table.c.worker.in_(names)
                rows = or_(queries.BOARD[table] == board, by_worker) & (table.c.created_at >= since)
                copied = select(*table.c, literal(why), literal(at)).where(rows)
                connection.execute(insert(withdrawn).from_select(list(withdrawn.c), copied, include_defaults=False))
                moved[table] = connection.execute(delete(table).where(rows)).rowcount
            connection.execute(delete(schema.asked))
            return moved[schema.measurements], moved[schema.finals]

        return self._transactions.write(write)


def _rows(connection: Connection) -> list[dict[str, str]]:
    if not inspect(connection).has_table(boards.name):
        return []
    stored = select(*(boards.c[name] for name in _FIELDS)).order_by(boards.c.id)
    return [dict(row) for row in connection.execute(stored).mappings()]
