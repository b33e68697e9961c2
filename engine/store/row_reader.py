"""Read rows into records: by pages, and without those that are damaged."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, TypeVar

from sqlalchemy import Row, Select, Table, select

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import schema, serialization
from gemmtune.engine.store.connection import Transactions

PAGE = 1000
"""Rows in memory; also keeps the parameters of a statement under the limit of every database."""

_MOST_NAMED = 100  # damaged rows with a notice each
_R = TypeVar("_R")


class RowReader:
    """Reads the rows of one database; a damaged row is named once, and left out."""

    def __init__(self, transactions: Transactions) -> None:
        """Read by these transactions, and send notices to their listener."""
        self.damaged: dict[tuple[str, int], object] = {}
        """Damaged rows that were met, by table and id, each with its config's digest."""
        self._transactions = transactions
        self._tasks: dict[int, Task | None] = {}  # by id; None for a damaged row
        self._toolchains: dict[int, Toolchain | None] = {}

    def rows(self, statement: Select[Any], terms: Mapping[str, object] | None = None) -> Sequence[Row[Any]]:
        """Return every row that a statement selects by these terms."""
        return self._transactions.read(lambda connection: connection.execute(statement, terms).all())

    def pages(self, statement: Select[Any], table: Table) -> Iterator[Sequence[Row[Any]]]:
        """Yield the rows of a table that a statement selects in insertion order, a page at a time.

        Raises:
            StoreError: the ids of the rows do not grow.
        """
        page = statement.order_by(table.c.id).limit(PAGE)
        last = 0
        while found := self.rows(page.where(table.c.id > last)):
            yield found
            if found[-1].id <= last:
                raise StoreError(f"database {self._transactions.name} is damaged: its rows are out of order")
            last = found[-1].id

    def records(self, table: Table, found: Iterable[Row[Any]], read: Callable[[Row[Any]], _R]) -> Iterator[_R]:
        """Yield the records of a table's rows."""
        for row in found:
            try:
                record = read(row)
            except serialization.DamagedRow as error:
                self._name(table, row, error)
                continue
            yield record

    def measurements(self, found: Sequence[Row[Any]]) -> Iterator[Measurement]:
        """Yield the measurements of rows of `queries.MEASUREMENTS`."""
        tasks = self.tasks({row.task_id for row in found})
        made_by = {row.toolchain_id for row in found}
        toolchains = self._by_id(schema.toolchains, serialization.toolchain_in, self._toolchains, made_by)

        def read(row: Row[Any]) -> Measurement:
            return serialization.measurement_of(row, tasks[row.task_id], toolchains[row.toolchain_id])

        return self.records(schema.measurements, found, read)

    def tasks(self, ids: Set[int]) -> dict[int, Task | None]:
        """Return the tasks read so far by id, with those of these ids: None for one that is damaged or missing."""
        return self._by_id(schema.tasks, serialization.task_of, self._tasks, ids)

    def _by_id(
        self, table: Table, read: Callable[[Row[Any]], _R], held: dict[int, _R | None], ids: Set[int]
    ) -> dict[int, _R | None]:
        if new := ids - held.keys():
            held |= dict.fromkeys(new)
            stored = self.rows(select(*schema.stored(table)).where(table.c.id.in_(new)))
            held |= {row.id: record for row in stored for record in self.records(table, [row], read)}
        return held

    def _name(self, table: Table, row: Row[Any], error: serialization.DamagedRow) -> None:
        """Send a notice of a damaged row, once per row; many are counted only."""
        if (table.name, row.id) in self.damaged:
            return
        self.damaged[table.name, row.id] = getattr(row, "config_digest", None)
        damage = f"{table.name.removesuffix('s')} {row.id} of database {self._transactions.name} is damaged"
        if len(self.damaged) <= _MOST_NAMED:
            further = "; further ones are only counted" if len(self.damaged) == _MOST_NAMED else ""
            self._transactions.notify(f"{damage} and left out: {error}{further}")
