"""The way to the database: transactions, and what becomes of them when the connection is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.store import postgres
from gemmtune.engine.store.terms import WRITES

__all__ = ["Link", "reason"]

_T = TypeVar("_T")
_PAUSES_SECONDS = (0.1, 5.0)  # between tries: the first, doubled up to the last


class Link:
    """Runs work in transactions, each whole or not at all.

    Where a server or the connection is lost, work is run again from its beginning, on a new connection. It may have
    been committed all the same, when the answer alone was lost: work must give the same when it is done twice.
    """

    def __init__(self, engine: Engine, patience_seconds: float) -> None:
        """Connect to nothing yet.

        Args:
            engine: the database's.
            patience_seconds: how long to try to connect again.
        """
        self.engine = engine
        self.name = engine.url.render_as_string(hide_password=True)
        self._patience_seconds = patience_seconds
        self._reached = False
        self.tell: Callable[[str], None] = lambda line: None
        """Called when the database is lost and when it is found again, with a line for a person."""

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """What `work` reads.

        Raises:
            StoreError: the database refused, or was out of reach for the whole patience.
        """
        return self._run("read", work, {})

    def write(self, work: Callable[[Connection], _T], doing: str = "write to") -> _T:
        """What `work` returns, committed; no other process writes meanwhile.

        Raises:
            StoreError: as `read`.
        """
        return self._run(doing, work, WRITES)

    def first(self, work: Callable[[Connection], _T]) -> _T:
        """What `work` reads, without patience: a database that cannot be reached at first is not there.

        Raises:
            StoreError: the database refused, or is out of reach.
        """
        found = self._run("open", work, {})
        self._reached = True
        return found

    def close(self) -> None:
        """Close every connection."""
        self.engine.dispose()

    def _run(self, doing: str, work: Callable[[Connection], _T], options: dict[str, bool]) -> _T:
        lost_at: float | None = None
        pause, longest = _PAUSES_SECONDS
        while True:
            try:
                with self.engine.connect().execution_options(**options) as connection, connection.begin():
                    result = work(connection)
            except SQLAlchemyError as error:
                if not self._reached or not postgres.is_loss(self.engine, error):
                    raise StoreError(f"cannot {doing} database {self.name}: {reason(error)}") from error
                now = time.monotonic()
                if lost_at is None:
                    lost_at = now
                    waiting = f"trying for {self._patience_seconds:.0f} s to reach it again"
                    self.tell(f"database {self.name} is lost: {reason(error)}; {waiting}")
                if now - lost_at >= self._patience_seconds:
                    gone = f"database {self.name} is out of reach for {now - lost_at:.0f} s ({reason(error)})"
                    raise StoreError(f"{gone}; what it holds is safe, and the same command goes on") from error
                time.sleep(pause)
                pause = min(2 * pause, longest)
                continue
            if lost_at is not None:
                away = time.monotonic() - lost_at
                self.tell(f"database {self.name} is back after {away:.1f} s, with all that was stored")
            return result


def reason(error: Exception) -> str:
    """Why a database refused, on one line."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    if text == "unable to open database file":
        return f"{text}; its folder must exist and be writable"
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg":
        return f"{text}; pip install 'gemmtune[postgres]'"
    return text
