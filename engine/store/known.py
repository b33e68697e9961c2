"""Read the measurements that need not be made again, of many tasks at a time."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from sqlalchemy import Connection, Row

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.store import queries, schema
from gemmtune.engine.store import serialization as rows
from gemmtune.engine.store.connection import Transactions
from gemmtune.engine.store.row_reader import PAGE, RowReader

_TASKS = 16  # of one page: their measurements are in memory together
_FEW = 64  # measurements of one task that are read without a question of which count
_Kind = tuple[int, str, int]  # ids of task and toolchain, with the protocol between them


@dataclass(frozen=True, slots=True)
class Wanted:
    """Measurements of one task that compare with each other, all of one evidence."""

    task: Task
    """Task that was measured."""
    protocol: str
    """Name of the timing protocol."""
    toolchain: Toolchain
    """Toolchain of the binaries."""
    digests: Sequence[str] | None = None
    """Digests of the configs to look for; None for all configs."""
    held: Mapping[str, Measurement] = field(default_factory=dict)
    """Stored measurements that were read before, by the digests of their configs; they are not read again."""
    reach_ns: Callable[[Sequence[Measurement]], float] | None = None
    """Function from the fastest LEADERS measurements to a time. Of many measurements, only those whose interval begins
    below it are read, and those of `needed`. None to read all."""
    needed: Set[str] = frozenset()
    """Digests of configs to read in any case."""


class KnownReader:
    """Reads measurements of many tasks: few statements per page of tasks, and each row is decoded once."""

    def __init__(self, transactions: Transactions, reader: RowReader, ids: dict[Task | Toolchain, int]) -> None:
        """Read by these transactions; `ids` holds the ids of stored tasks and toolchains, and gets further ones."""
        self._transactions = transactions
        self._reader = reader
        self._ids = ids

    def known(self, wanted: Iterable[Wanted], evidence: Evidence) -> Iterator[dict[Config, Measurement]]:
        """Yield the measurements of each that is wanted, failures included, by config and in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        left = iter(wanted)
        while page := list(islice(left, _TASKS)):
            yield from self._page(page, evidence)

    def _page(self, page: Sequence[Wanted], evidence: Evidence) -> Iterator[dict[Config, Measurement]]:
        found = self._transactions.read(partial(self._found, page=page, evidence=evidence))
        unread = []
        for each, of_each in zip(page, found, strict=True):
            keys = [(number, digest) for number, digest in of_each if digest not in each.held]
            if each.reach_ns is not None and len(keys) > _FEW:
                near = self._near(each, each.reach_ns, evidence)
                keys = [key for key in keys if near is None or key[0] in near or key[1] in each.needed]
            unread += [(number, each) for number, _ in keys]
        read = self._read(unread)
        for each, of_each in zip(page, found, strict=True):
            measurements = (each.held.get(digest) or read.get(number) for number, digest in of_each)
            yield {measurement.config: measurement for measurement in measurements if measurement is not None}

    def _read(self, unread: Sequence[tuple[int, Wanted]]) -> dict[int, Measurement]:
        """Return the measurements of these ids, without damaged ones."""
        read: dict[int, Measurement] = {}
        for start in range(0, len(unread), PAGE):
            asked = dict(unread[start : start + PAGE])
            stored = self._reader.rows(queries.KNOWN, {"ids": list(asked)})
            decoded = self._reader.records(schema.measurements, stored, partial(_numbered, asked=asked))
            read |= dict(decoded)
        return read

    def _near(
        self, wanted: Wanted, reach_ns: Callable[[Sequence[Measurement]], float], evidence: Evidence
    ) -> Set[int] | None:
        """Return the ids within reach of the fastest; None if too few are ok, or one of the fastest is damaged."""
        kind = {"task": self._ids[wanted.task], "toolchain": self._ids[wanted.toolchain]}
        terms = kind | {"protocol": wanted.protocol, "evidence": evidence}
        fastest = [number for (number,) in self._reader.rows(queries.FASTEST, terms)]
        leaders = self._read([(number, wanted) for number in fastest])
        if len(leaders) < queries.LEADERS:
            return None
        reach = reach_ns([leaders[number] for number in fastest])
        return {number for (number,) in self._reader.rows(queries.NEAR, terms | {"reach": reach})}

    def _found(self, connection: Connection, page: Sequence[Wanted], evidence: Evidence) -> list[list[tuple[int, str]]]:
        """Return id and config's digest of the measurements of each that is wanted, in insertion order."""
        self._find_ids(connection, page)
        kinds = [(self._ids.get(each.task), each.protocol, self._ids.get(each.toolchain)) for each in page]
        terms = {f"{name}s": set(column) for name, column in zip(queries.KIND, zip(*kinds, strict=True), strict=True)}
        held = defaultdict(list)
        for number, digest, *kind in connection.execute(queries.KNOWN_KEYS, terms | {"evidence": evidence}):
            held[tuple(kind)].append((number, digest))
        asked = (None if each.digests is None else set(each.digests) for each in page)
        return [
            sorted(key for key in held[kind] if digests is None or key[1] in digests)
            for kind, digests in zip(kinds, asked, strict=True)
        ]

    def _find_ids(self, connection: Connection, page: Sequence[Wanted]) -> None:
        """Keep the ids of the page's tasks and toolchains, as far as they are stored."""
        for toolchain in {each.toolchain for each in page if each.toolchain not in self._ids}:
            number = connection.execute(queries.TOOLCHAIN_ID, rows.identity(toolchain)).scalar()
            if number is not None:
                self._ids[toolchain] = number
        new = {rows.task_texts(each.task): each.task for each in page if each.task not in self._ids}
        if new:
            terms = zip(queries.TASK_FIELDS, zip(*new, strict=True), strict=True)
            for number, *texts in connection.execute(queries.TASK_IDS, {name: set(found) for name, found in terms}):
                if task := new.get(tuple(texts)):
                    self._ids[task] = number


def _numbered(row: Row[Any], asked: Mapping[int, Wanted]) -> tuple[int, Measurement]:
    wanted = asked[row.id]
    return row.id, rows.measurement_of(row, wanted.task, wanted.toolchain)
