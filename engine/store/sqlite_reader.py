"""Read a SQLite file without writing to it or beside it, and notice that one that is written is taken away."""

import os
import secrets
import sqlite3
from pathlib import Path
from pwd import getpwuid
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError


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


class HeldFile:
    """Tells whether the file at a path is still the one that an engine writes to.

    SQLite goes on with the file that it has open, and whoever opens the path later finds nothing of that.
    """

    def __init__(self, engine: Engine, path: str) -> None:
        """Keep the path; the first look after each connection remembers what is there."""
        self._engine = engine
        self._path = Path(path).absolute()
        self._files = str(self._path), f"{self._path}-wal"
        self._held: list[tuple[int, int]] = []
        event.listen(engine, "connect", lambda *_: self._held.clear())

    def fault(self) -> str:
        """Return what happened to the file since the first look, and what is kept of it; empty if it is the same."""
        (file, size), (log, _) = map(_identity_and_size, self._files)
        self._held = self._held or [file, log]
        if size is None:
            happened = "it was deleted or moved"
        elif not size:
            happened = "it was emptied"
        elif file != self._held[0]:
            happened = "it was replaced by another file"
        elif log != self._held[1]:
            happened = "its log (-wal) was deleted or replaced"
        else:
            return ""
        return f"{happened} while gemmtune wrote to it{self._rescued()}"

    def _rescued(self) -> str:
        """Copy what the open connection still reads beside the path, and say so."""
        copy = self._path.with_name(f"rescued-{secrets.token_hex(4)}.db")
        try:
            with self._engine.connect() as connection:
                connection.exec_driver_sql("VACUUM INTO ?", (str(copy),))
        except SQLAlchemyError:  # the folder is gone, too, or the disk is full
            return ", and what it held is lost unless it was moved"
        return f"; all that it held is in {copy}, and `gemmtune campaigns {self._path} merge {copy}` brings it back"


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


def _identity_and_size(path: str) -> tuple[tuple[int, int], int | None]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0), None
    return (found.st_dev, found.st_ino), found.st_size
