"""Binaries that tasks share: built once by the builders of a campaign, copied for every other task."""

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
    """Artifacts by key, in a folder that the builder processes of one campaign share.

    An artifact that is handed out has a file of its own, which goes once it is measured; the library's copy stays.
    """

    def __init__(self, folder: Path) -> None:
        """Nothing is made before something is kept."""
        self._folder = folder

    def find(self, key: str, folder: Path, name: str) -> Artifact | None:
        """The artifact of that key, its file copied to `name` and the file's suffix in `folder`; None if unknown."""
        try:
            kept: Artifact = pickle.loads(self._entry(key).read_bytes())  # noqa: S301 (written by `add`)
        except FileNotFoundError:
            return None
        copy = folder / f"{name}{Path(kept.path).suffix}"
        shutil.copyfile(kept.path, copy)
        return replace(kept, path=str(copy))

    def add(self, artifact: Artifact) -> None:
        """Keep a copy; of several builders that bring one key at once, one is kept, and an entry is whole or absent."""
        self._folder.mkdir(exist_ok=True)
        suffix = Path(artifact.path).suffix
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=suffix, delete=False) as file:
            file.write(Path(artifact.path).read_bytes())
        with tempfile.NamedTemporaryFile(dir=self._folder, delete=False) as entry:
            entry.write(pickle.dumps(replace(artifact, path=file.name)))
        Path(entry.name).replace(self._entry(artifact.key))

    def _entry(self, key: str) -> Path:
        return self._folder / f"{hashlib.sha256(key.encode()).hexdigest()}.artifact"
