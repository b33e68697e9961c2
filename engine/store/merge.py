"""Merge the databases of several sites."""

from array import array
from dataclasses import dataclass
from itertools import islice

from gemmtune.engine.records.verdict import Trust
from gemmtune.engine.store.database import Database

_PAGE = 1000  # measurements in memory, and in one transaction
_FINALS = 100  # as many; a final is tens of times as large


@dataclass(frozen=True, slots=True)
class Merged:
    """Number of whole records that a source database holds, and how many of them were new."""

    measurements: int
    """Number of measurements that the source holds."""
    new: int
    """Number of measurements that were not known before."""
    finals: int
    """Number of finals that the source holds."""
    new_finals: int
    """Number of finals that were not known before."""
    damaged: int = 0
    """Number of damaged rows of the source, which were left out."""


def merge(into: Database, source: Database) -> Merged:
    """Add the measurements and finals of `source` that `into` does not hold; `source` is only read.

    `Database.add` says which measurements are equal; the one of `into` stays. What `into` has withdrawn stays out. It
    takes over later verdicts on boards, and withdraws what a quarantined one measured. A merge that was killed at any
    instant continues when it is run again.

    Raises:
        StoreError: `source` cannot be read, or `into` cannot be written to.
    """
    held = new = finals = new_finals = 0
    missing, boards = array("q"), into.boards.verdicts()
    for verdict in source.boards.verdicts().values():
        if verdict.board not in boards or boards[verdict.board].at < verdict.at:
            if verdict.trust is Trust.QUARANTINED:
                into.boards.withdraw(verdict.board, verdict.reason, since=verdict.since, workers=[verdict.worker])
            into.boards.add(verdict)
    withdrawn = into.boards.withdrawn_from()
    for task, theirs in source.keys_by_task():
        ours = {} if task is None else into.keys_of(task)
        held += len(theirs)
        missing.extend(number for key, number in theirs.items() if key not in ours)
    ids = sorted(missing)  # in the order of the source's insertion
    for start in range(0, len(ids), _PAGE):
        page = ids[start : start + _PAGE]
        measurements = source.measurements_of_ids(page)
        held -= len(page) - len(measurements)
        new += into.add([m for m in measurements if (m.worker, m.created_at) not in withdrawn])
    every_final = source.all_finals()
    while batch := list(islice(every_final, _FINALS)):
        finals += len(batch)
        new_finals += into.add_finals([f for f in batch if (f.worker, f.created_at) not in withdrawn])
    return Merged(held, new, finals, new_finals, source.damaged)
