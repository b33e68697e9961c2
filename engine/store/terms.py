"""What a connection says of itself to the database it is of."""

from __future__ import annotations

__all__ = ["WRITES"]

WRITES = {"gemmtune_writes": True}
"""Execution options of a connection that is going to write: it takes the writers' lock when it begins."""
