"""Merge the databases of several sites."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from gemmtune.engine.store.database import Database

__all__ = ["Merged", "merge"]

_PAGE = 1000  # measurements in memory, and in one transaction


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

    `Database.add` says which measurements are equal; the one of `into` stays. A merge that was killed at any instant
    continues when it is run again.

    Raises:
        StoreError: `source` cannot be read, or `into` cannot be written to.
    """
    held = new = 0
    measurements = source.measurements()
    while batch := list(islice(measurements, _PAGE)):
        held += len(batch)
        new += into.add(batch)
    finals = source.finals()
    return Merged(held, new, len(finals), sum(into.add_final(final) for final in finals), source.damaged)
