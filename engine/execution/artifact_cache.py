"""Keeps the binaries of each task's fastest configs for its final, and deletes all others."""

import shutil
from dataclasses import replace
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task


class ArtifactCache:
    """The artifacts of each task's fastest configs."""

    def __init__(self, size: int) -> None:
        """Keep at most `size` artifacts per task."""
        self._size = size
        self._kept: dict[Task, dict[Config, tuple[float, Artifact]]] = {}

    def keep(self, task: Task, config: Config, artifact: Artifact, time_ns: float) -> None:
        """Add an artifact; if the task has too many, delete the slowest."""
        kept = self._kept.setdefault(task, {})
        kept[config] = time_ns, artifact
        if len(kept) > self._size:
            slowest = max(kept, key=lambda c: kept[c][0])
            discard(kept.pop(slowest)[1])

    def find(self, task: Task, config: Config) -> Artifact | None:
        """Return the artifact of a config, or None if it was not kept."""
        found = self._kept.get(task, {}).get(config)
        return None if found is None else found[1]

    def clear(self, task: Task) -> None:
        """Delete the artifacts of a task."""
        for _, artifact in self._kept.pop(task, {}).values():
            discard(artifact)


def discard(artifact: Artifact) -> None:
    """Delete an artifact's file: a sweep of a space builds thousands."""
    if artifact.path:
        Path(artifact.path).unlink(missing_ok=True)


def copied(artifact: Artifact) -> Artifact:
    """Return an artifact with a binary of its own, beside the one that its config's final deletes."""
    if not artifact.path:
        return artifact
    path = Path(artifact.path)
    return replace(artifact, path=str(shutil.copyfile(path, path.with_stem(f"{path.stem}-canary"))))
