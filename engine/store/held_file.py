"""Notice that an open SQLite file is not there any more, or is another one."""

import os
import secrets
from pathlib import Path

from sqlalchemy import Engine, event
from sqlalchemy.exc import SQLAlchemyError

__all__ = ["HeldFile"]


class HeldFile:
    """Tells whether the file at a path is still the one that an engine writes to.

    SQLite goes on with the file that it has open, and whoever opens the path later finds nothing of that.
    """

    def __init__(self, engine: Engine, path: str) -> None:
        """Keep the path; the first look after each connection remembers what is there."""
        self._engine = engine
        self._path = Path(path).absolute()
        self._held: list[tuple[int, int]] = []
        event.listen(engine, "connect", lambda *_: self._held.clear())

    def fault(self) -> str:
        """Return what happened to the file since the first look, and what is kept of it; empty if it is the same."""
        found = [_identity(path) for path in (self._path, Path(f"{self._path}-wal"))]
        self._held = self._held or found
        if not self._path.exists():
            happened = "it was deleted or moved"
        elif not self._path.stat().st_size:
            happened = "it was emptied"
        elif found[0] != self._held[0]:
            happened = "it was replaced by another file"
        elif found[1] != self._held[1]:
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
        return f"; all that it held is in {copy}, and `gemmtune merge {self._path} {copy}` brings it back"


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
