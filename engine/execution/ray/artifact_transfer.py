"""Binaries on their way between machines, under the hash of their content."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.records.artifact import Artifact

__all__ = ["Cellar", "Packed", "packed", "unpacked"]

T = TypeVar("T")

_MOST_FILES = 512
"""Binaries a worker's machine keeps: far more than are on their way to it at a time."""


@dataclass(frozen=True, slots=True)
class Packed:
    """An artifact whose file comes beside it."""

    artifact: Artifact
    """The path is the suffix alone."""
    content: bytes
    """Of the file."""


def packed(result: object) -> object:
    """A builder's result, an artifact with its file; the file is deleted."""
    if not isinstance(result, Artifact) or not result.path:
        return result
    path = Path(result.path)
    content = path.read_bytes()
    path.unlink()
    return Packed(replace(result, path=path.suffix), content)


def unpacked(result: T | Packed, folder: Path) -> T | Artifact:
    """What was packed, its file now in `folder`: one of its own, for it is deleted with its artifact."""
    if not isinstance(result, Packed):
        return result
    digest, suffix = hashlib.sha256(result.content).hexdigest(), result.artifact.path
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{digest}.", suffix=suffix, delete=False) as file:
        file.write(result.content)
    return replace(result.artifact, path=file.name)


class Cellar:
    """The binaries that a machine was sent, each once, the latest ones."""

    def __init__(self, folder: Path) -> None:
        """Keep them in an empty folder."""
        self._folder = folder
        self._files: dict[str, Path] = {}

    @staticmethod
    def needs(job: object) -> dict[str, str]:
        """Digest to file of each binary that a job of the driver needs; `unpacked` has named the files."""
        paths = (Path(artifact.path) for artifact in _artifacts(job) if artifact.path)
        return {path.name.partition(".")[0]: str(path) for path in paths}

    def place(self, job: T, contents: Mapping[str, bytes]) -> T:
        """The job, on files of this machine; the missing ones are written first."""
        if isinstance(job, MeasureJob):
            return replace(job, artifact=self._placed(job.artifact, contents))
        if isinstance(job, FinalJob):
            return replace(job, finalists=tuple(self.place(finalist, contents) for finalist in job.finalists))
        return job

    def _placed(self, artifact: Artifact, contents: Mapping[str, bytes]) -> Artifact:
        if not artifact.path:
            return artifact
        path = Path(artifact.path)
        digest = path.name.partition(".")[0]
        known = self._files.pop(digest, None)
        if known is None:
            known = self._folder / f"{digest}{path.suffix}"
            known.write_bytes(contents[digest])
        self._files[digest] = known  # the latest is the last
        if len(self._files) > _MOST_FILES:
            self._files.pop(next(iter(self._files))).unlink()
        return replace(artifact, path=str(known))


def _artifacts(job: object) -> tuple[Artifact, ...]:
    if isinstance(job, MeasureJob):
        return (job.artifact,)
    return tuple(finalist.artifact for finalist in job.finalists) if isinstance(job, FinalJob) else ()
