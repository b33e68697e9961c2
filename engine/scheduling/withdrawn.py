"""Boards that are not believed: stored canaries before a campaign, and a new begin after rows were withdrawn."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted

_T = TypeVar("_T")
_CANARIES = 3
"""Stored measurements of one problem, at most, that the campaign's boards are compared with."""
_LOOKED_AT = 32
"""Tasks, at most, in which stored measurements are looked for."""


class RowsWithdrawn(Exception):  # noqa: N818 (the name says what happened)
    """Measurements that the searches were told do not count any more: they begin again, with what is left."""


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
