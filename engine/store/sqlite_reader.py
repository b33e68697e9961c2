"""Read a SQLite file without writing to it or beside it."""

import os
import sqlite3
from pathlib import Path
from pwd import getpwuid
from typing import Any
from urllib.parse import quote

__all__ = ["SqliteReader", "unwritable"]


class SqliteReader:
    """Makes connections to one SQLite file that write nothing.

    A connection that takes part in locking leaves a log and its index (-wal, -shm) in the folder. They would belong to
    the reader, and the next writer could be another user. Where no log exists, no writer has the file open: it is read
    without locks, as a constant, and `changed` tells whether it was one.
    """

    def __init__(self, path: str) -> None:
        """Keep the path; nothing is opened yet."""
        self._path = path
        self._constant: tuple[int, int] | None = None

    def connect(self, dialect: object, record: object, arguments: list[str], parameters: dict[str, Any]) -> object:
        """Return a connection; SQLAlchemy calls this function in place of the driver's."""
        self._constant = self._state()
        mode = "mode=ro"
        if self._constant is not None:
            mode += "&immutable=1"
        elif os.stat(self._path).st_uid != os.geteuid():
            mode += "&readonly_shm=1"  # the owner's own index may be written
        return sqlite3.connect(f"file:{quote(os.fsencode(os.path.abspath(self._path)))}?{mode}", uri=True, **parameters)

    def changed(self) -> bool:
        """Return whether the file was read as a constant, and another process has opened or written it since."""
        return self._constant is not None and self._state() != self._constant

    def _state(self) -> tuple[int, int] | None:
        """Return size and modification time; None where a log exists, or no file."""
        if any(os.path.exists(self._path + end) for end in ("-wal", "-journal")):
            return None
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_size, found.st_mtime_ns


def unwritable(path: str) -> str:
    """Return which of a SQLite file and its log may not be written and what helps, on one line; empty for none."""
    for file in map(Path, (path, f"{path}-wal", f"{path}-shm")):
        if file.exists() and not os.access(file, os.W_OK):
            found = file.stat()
            try:
                owner = getpwuid(found.st_uid).pw_name
            except KeyError:
                owner = f"user {found.st_uid}"
            if file.name.endswith("-shm") or (file.name.endswith("-wal") and not found.st_size):
                return f"{file} belongs to {owner}: remove it once nobody has the database open"
            return f"{file} belongs to {owner}: ask for chmod g+w {file}"
    return ""
