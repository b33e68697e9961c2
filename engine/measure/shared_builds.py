"""Share binaries between the tasks of a campaign: built once, copied for every other task."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from gemmtune.engine.records.artifact import Artifact

__all__ = ["SharedBuilds"]


class SharedBuilds:
    """Artifacts by key, in a folder that all builder processes of a campaign share.

    Each task gets a copy in a file of its own, which is deleted once it is measured.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, key: str, folder: Path, name: str) -> Artifact | None:
        """Copy the binary of this key into `folder` and return its artifact; None if the key is unknown.

        The copy is called `name`, with the suffix of the original.
        """
        try:
            stored: Artifact = pickle.loads(self._entry(key).read_bytes())  # noqa: S301 (written by `add`)
        except FileNotFoundError:
            return None
        copy = folder / f"{name}{Path(stored.path).suffix}"
        shutil.copyfile(stored.path, copy)
        return replace(stored, path=str(copy))

    def add(self, artifact: Artifact) -> None:
        """Store a copy of the artifact, atomically; if several builders store one key at once, the last one stays."""
        self._folder.mkdir(exist_ok=True)
        suffix = Path(artifact.path).suffix
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=suffix, delete=False) as file:
            file.write(Path(artifact.path).read_bytes())
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as entry:
            entry.write(pickle.dumps(replace(artifact, path=file.name)))
        Path(entry.name).replace(self._entry(artifact.key))

    def _entry(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.artifact"
