"""Temporary folders of a process; the next process deletes those that a killed one left."""

import fcntl
import os
import time
from contextlib import suppress
from functools import cache
from multiprocessing.util import Finalize
from pathlib import Path
from shutil import rmtree
from tempfile import gettempdir, mkdtemp

_PREFIX = "gemmtune-scratch-"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_YOUNG_SECONDS = 60.0
"""Age below which a folder may be one that its process is about to lock."""


class ScratchFolder:
    """Temporary folder that is locked as long as its process lives, and deleted at its end."""

    def __init__(self, parent: str | None = None) -> None:
        """Delete this user's folders without a living process, and make a new one; by default where Python's are."""
        parent = parent or gettempdir()
        for folder in Path(parent).glob(f"{_PREFIX}*"):
            with suppress(OSError):  # locked, another user's, a link, or gone
                _delete_abandoned(folder)
        self.name = mkdtemp(prefix=_PREFIX, dir=parent)
        """Path of the folder."""
        lock = os.open(self.name, _OPEN)
        fcntl.flock(lock, fcntl.LOCK_EX)
        self._finalize = Finalize(None, _delete, (self.name, lock), exitpriority=-200)  # after multiprocessing's folder

    def __enter__(self) -> str:
        return self.name

    def __exit__(self, *_: object) -> None:
        self.cleanup()

    def cleanup(self) -> None:
        """Delete the folder with what it holds."""
        self._finalize()


@cache
def process_folder() -> str:
    """Return a folder that is deleted when this process ends."""
    return ScratchFolder().name


def _delete(folder: str, lock: int) -> None:
    rmtree(folder, ignore_errors=True)
    os.close(lock)


def _delete_abandoned(folder: Path) -> None:
    lock = os.open(folder, _OPEN)
    try:
        found = os.fstat(lock)
        if found.st_uid == os.geteuid() and time.time() - found.st_mtime > _YOUNG_SECONDS:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            rmtree(folder)
    finally:
        os.close(lock)
