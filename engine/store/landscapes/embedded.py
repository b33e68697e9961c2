"""Find the landscapes that ship with gemmtune."""

from __future__ import annotations

import csv
import gzip
from importlib import resources
from pathlib import Path

from gemmtune.engine.store import recorded

__all__ = ["embedded"]


def embedded(space: str | None = None) -> tuple[Path, ...]:
    """Return the shipped landscape files, sorted by name; with `space`, those that hold a task of that space."""
    entries = (Path(str(entry)) for entry in resources.files(recorded).iterdir())
    files = sorted(path for path in entries if path.name.endswith(".csv.gz"))
    return tuple(path for path in files if space is None or _holds(path, space))


def _holds(path: Path, space: str) -> bool:
    with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
        return any(row.get("task.space") == space for row in csv.DictReader(stream))
