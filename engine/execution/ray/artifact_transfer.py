"""Takes binaries out of artifacts and puts them back, so that they travel between machines as bytes.

Ray passes an argument or a result above 100 kB through its object store.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.records.artifact import Artifact

__all__ = ["artifacts_of", "read_binaries", "take_binary", "with_binaries", "with_binary"]

T = TypeVar("T")


def take_binary(result: object) -> bytes:
    """Return the binary of a builder's result and delete its file; empty if the result has none."""
    if not isinstance(result, Artifact) or not result.path:
        return b""
    path = Path(result.path)
    content = path.read_bytes()
    path.unlink()
    return content


def with_binary(result: T, content: bytes, folder: Path) -> T | Artifact:
    """Return an artifact whose binary is in a new file of `folder`; any other result is returned unchanged."""
    if not isinstance(result, Artifact) or not result.path:
        return result
    with tempfile.NamedTemporaryFile(dir=folder, suffix=Path(result.path).suffix, delete=False) as file:
        file.write(content)
    return replace(result, path=file.name)


def artifacts_of(job: object) -> Iterator[Artifact]:
    """Return the artifacts that a job of a GPU worker loads; a build has none."""
    if isinstance(job, MeasureJob):
        yield job.artifact
    elif isinstance(job, FinalJob):
        yield from (finalist.artifact for finalist in job.finalists)


def read_binaries(job: object) -> list[bytes]:
    """Return the binary of each of the job's artifacts, empty for an artifact without a file."""
    return [Path(artifact.path).read_bytes() if artifact.path else b"" for artifact in artifacts_of(job)]


def with_binaries(job: T, contents: Sequence[bytes], folder: Path) -> T | MeasureJob | FinalJob:
    """Return the job with each binary in a new file of `folder`."""
    if isinstance(job, MeasureJob):
        return replace(job, artifact=with_binary(job.artifact, contents[0], folder))
    if isinstance(job, FinalJob):
        pairs = zip(job.finalists, contents, strict=True)
        return FinalJob(tuple(replace(f, artifact=with_binary(f.artifact, content, folder)) for f, content in pairs))
    return job
