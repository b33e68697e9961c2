"""The binaries of each task's best configs, kept for its final; all others are deleted once measured."""

from __future__ import annotations

from pathlib import Path

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task

__all__ = ["Shelf", "discard"]


class Shelf:
    """At most `places` artifacts a task, the fastest ones."""

    def __init__(self, places: int) -> None:
        """Start empty."""
        self._places = places
        self._kept: dict[Task, dict[Config, tuple[float, Artifact]]] = {}

    def keep(self, task: Task, config: Config, artifact: Artifact, time_ns: float) -> None:
        """Put one on the shelf; the slowest goes where there is no place left."""
        kept = self._kept.setdefault(task, {})
        kept[config] = time_ns, artifact
        if len(kept) > self._places:
            slowest = max(kept, key=lambda c: kept[c][0])
            discard(kept.pop(slowest)[1])

    def find(self, task: Task, config: Config) -> Artifact | None:
        """The artifact, where it is kept."""
        found = self._kept.get(task, {}).get(config)
        return None if found is None else found[1]

    def clear(self, task: Task) -> None:
        """Delete what is kept of a task."""
        for _, artifact in self._kept.pop(task, {}).values():
            discard(artifact)


def discard(artifact: Artifact) -> None:
    """Delete a binary: a sweep of a space leaves thousands."""
    if artifact.path:
        Path(artifact.path).unlink(missing_ok=True)
