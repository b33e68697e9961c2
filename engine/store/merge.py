"""One database out of several sites'."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from gemmtune.engine.store.database import Database

__all__ = ["Merged", "merge"]

_PAGE = 1000  # measurements in memory, and in one transaction


@dataclass(frozen=True, slots=True)
class Merged:
    """What a merge found in one database."""

    measurements: int
    """Measurements it holds."""
    new: int
    """Those that were not known before."""
    finals: int
    """Finals it holds."""
    new_finals: int
    """Those that were not known before."""


def merge(into: Database, source: Database) -> Merged:
    """Add what another database holds and this one does not; the other is only read.

    Of two measurements of a task and config by one protocol, evidence and toolchain, `into`'s own stays, as in
    `Database.add`. Killed at any instant, it goes on when it is run again.

    Raises:
        StoreError: one of them cannot be read, or the first not be written to.
    """
    held = new = 0
    measurements = source.measurements()
    while batch := list(islice(measurements, _PAGE)):
        held += len(batch)
        new += into.add(batch)
    finals = source.finals()
    return Merged(held, new, len(finals), into.add_older_finals(finals))
