"""Boards that are not believed: stored canaries before a campaign, and a new begin after rows were withdrawn."""

from collections.abc import Callable, Sequence, Set
from typing import TypeVar

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted

_T = TypeVar("_T")
_CANARIES = 3
"""Stored measurements of one problem, at most, that the campaign's boards are compared with."""
_LOOK_SECONDS = 2.0  # between two looks for rows that somebody else withdrew
_LOOKED_AT = 32
"""Tasks, at most, in which stored measurements are looked for."""


class RowsWithdrawn(Exception):  # noqa: N818 (the name says what happened)
    """Measurements that the searches were told do not count any more: they begin again, with what is left."""


class Withdrawals:
    """Rows of some devices that are withdrawn while searches run: by this driver, by another one, or by hand."""

    def __init__(self, database: Database, executor: Executor, devices: Set[Device], now: Callable[[], float]) -> None:
        """Count what is withdrawn already; `now` returns monotonic seconds. StoreError: it cannot be read."""
        self._boards = database.boards if executor.evidence is Evidence.MEASURED else None
        self.is_due = False
        """Whether the next call of `are_new` looks, however short ago the last one did."""
        self._now = now
        self._looked = now()
        self._devices = devices
        self._before = self._boards and self._boards.withdrawn(devices)

    def are_new(self) -> bool:
        """Return whether there are further ones; look every two seconds. StoreError: they cannot be read."""
        if self._boards is None or (not self.is_due and self._now() - self._looked < _LOOK_SECONDS):
            return False
        self._looked, self.is_due = self._now(), False
        return self._boards.withdrawn(self._devices) != self._before


def repeated(searches: Sequence[TaskSearch], attempt: Callable[[], _T]) -> _T:
    """Return the result of an attempt, which is made again with fresh searches whenever rows are withdrawn."""
    while True:
        try:
            return attempt()
        except RowsWithdrawn:
            for search in searches:
                search.restart()


def stored_canaries(tasks: Sequence[Task], executor: Executor, database: Database) -> list[Measurement]:
    """Return measurements of the first problem with some in the database, the baseline's first."""
    found = list[Measurement]()
    looked_at = tasks[:_LOOKED_AT] if executor.evidence is Evidence.MEASURED else []
    wanted = (Wanted(task, executor.protocol(task), executor.toolchain(task)) for task in looked_at)
    for task, known in zip(looked_at, database.known_of_each(wanted, executor.evidence), strict=True):
        if found and task.problem != found[0].task.problem:
            break
        timed = [m for m in known.values() if m.estimate is not None and m.estimate.is_steady]
        found += sorted(timed, key=lambda m: m.created_at)[: _CANARIES - 1]
    return sorted(found, key=lambda m: not m.task.is_baseline)[:_CANARIES]
