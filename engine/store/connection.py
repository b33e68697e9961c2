"""Run transactions, and repeat them when the connection to the database is lost."""

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.store.dialects import accept_any_text, begin, is_connection_loss, is_locked, is_starting, set_wal
from gemmtune.engine.store.sqlite_reader import HeldFile, SqliteReader, unwritable
from gemmtune.engine.toolchain.installed import install_command

_T = TypeVar("_T")
_PAUSES_SECONDS = (0.1, 5.0)  # between attempts: the first, doubled up to the last


class Transactions:
    """Run functions in transactions, each whole or not at all.

    When a server or the connection is lost, the function runs again from its beginning, on a new connection. The first
    attempt may have been committed although its answer was lost: running a function twice must change nothing. A
    database that was never reached is an error at once. One that another process has locked is waited for.
    """

    def __init__(
        self, engine: Engine, patience_seconds: float, reader: SqliteReader | None = None, file: HeldFile | None = None
    ) -> None:
        """Keep the engine without connecting.

        Args:
            engine: the engine of the database.
            patience_seconds: how long to wait for a lost server, or for a lock that another process holds.
            reader: makes the engine's connections to a SQLite file that is only read.
            file: watches a SQLite file that is written.
        """
        self.engine = engine
        self.name = engine.url.render_as_string(hide_password=True)
        self.notify: Callable[[str], None] = logging.getLogger("gemmtune").warning
        """Function that receives one line when the database is lost, locked or back, and per damaged row; a log."""
        self.patience_seconds = patience_seconds
        """Time to wait for a lost server, or for a lock that another process holds, in seconds."""
        self._reached = False
        self._reader = reader
        self._file = file
        self._wrote = False
        self._accepts_any_text = False

    def read(self, work: Callable[[Connection], _T]) -> _T:
        """Return the result of `work`.

        Raises:
            StoreError: the database refused, or was out of reach for `patience_seconds`.
        """
        return self._run(work, write=False)

    def write(self, work: Callable[[Connection], _T], *, durable: bool = True) -> _T:
        """Return the result of `work` once it is committed; no other process writes meanwhile.

        Args:
            work: reads and writes.
            durable: False where a server that dies may forget it, which need not wait for its disk.

        Raises:
            StoreError: the database refused, was out of reach for `patience_seconds`, or lost its file.
        """
        result = self._run(work, write=True, durable=durable)
        self._wrote = True
        if self._file is not None and (fault := self._file.fault()):
            raise StoreError(f"database {self.name} is lost: {fault}; no results are written")
        return result

    def check(self) -> None:
        """Raise a StoreError if the file was deleted, moved, replaced, emptied or damaged; called at the end."""
        if self._file is None or not self._wrote:
            return
        fault = self._file.fault()
        if not fault:
            self.engine.dispose()  # a fresh connection reads what others will
            (found,) = self.read(lambda connection: list(connection.exec_driver_sql("PRAGMA quick_check(1)").scalars()))
            if found != "ok":
                found = " ".join(found.split())
                fault = f"its file is damaged ({found}), and `gemmtune campaigns NEW merge OLD` copies what is whole"
        if fault:
            raise StoreError(f"database {self.name} is lost: {fault}; the results that were written stay")

    def set_wal(self) -> None:
        """Let readers and one writer use a SQLite file at the same time.

        Raises:
            StoreError: the database refused, or another process had it locked for `patience_seconds`.
        """
        self._persist(lambda: set_wal(self.engine), "open")

    def _run(self, work: Callable[[Connection], _T], *, write: bool, durable: bool = True) -> _T:
        def transaction() -> _T:
            with self.engine.begin() as connection:
                begin(connection, write=write, durable=durable)
                return work(connection)

        return self._persist(transaction, "write to" if write else "read")

    def _persist(self, attempt: Callable[[], _T], verb: str) -> _T:
        """Return the result of `attempt`, which is repeated while the server is lost or the database locked."""
        lost_at: float | None = None
        waiting_since: float | None = None
        pause, longest = _PAUSES_SECONDS
        while True:
            try:
                result = attempt()
            except UnicodeDecodeError as error:  # a message of SQLite quotes a damaged schema
                said = error.object.decode(errors="backslashreplace")
                raise StoreError(f"cannot read database {self.name}: {said}") from None
            except SQLAlchemyError as error:
                if self._changed() or self._accepts_text_after(error):
                    continue
                if is_locked(error):
                    waiting_since = self._wait(waiting_since, error)
                    continue
                if not (self._reached or is_starting(error)) or not is_connection_loss(self.engine, error):
                    failed = f"cannot {verb if self._reached else 'open'} database {self.name}"
                    raise StoreError(f"{failed}: {reason(error, self.engine)}") from error
                now = time.monotonic()
                lost_at = now if lost_at is None else lost_at
                if now - lost_at >= self.patience_seconds:
                    gone = f"database {self.name} is out of reach for {now - lost_at:.0f} s ({reason(error)})"
                    raise StoreError(f"{gone}; stored measurements are safe: run the same command again") from error
                if now == lost_at:
                    waiting = f"trying for {self.patience_seconds:.0f} s to reach it again"
                    state = "lost" if self._reached else "not ready"
                    self.notify(f"database {self.name} is {state}: {reason(error)}; {waiting}")
                time.sleep(pause)
                pause = min(2 * pause, longest)
                continue
            if self._changed():
                continue
            self._reached = True
            if lost_at is not None:
                away = time.monotonic() - lost_at
                self.notify(f"database {self.name} is back after {away:.1f} s, with all that was stored")
            return result

    def _wait(self, since: float | None, error: SQLAlchemyError) -> float:
        """Say once that another process has locked the database; return when the waiting began."""
        now = time.monotonic()
        if since is None:
            self.notify(f"waiting for the database {self.name}: another process has locked it")
            return now
        if now - since >= self.patience_seconds:
            held = f"another process has had database {self.name} locked for {now - since:.0f} s"
            raise StoreError(f"{held}; end it, then run the same command again: what was stored is safe") from error
        return since

    def _accepts_text_after(self, error: SQLAlchemyError) -> bool:
        """Return whether it helps to try again because a stored text is damaged, and not UTF-8 any more."""
        if self._accepts_any_text or "Could not decode to UTF-8" not in str(error):
            return False
        accept_any_text(self.engine)
        self._accepts_any_text = True
        return True

    def _changed(self) -> bool:
        """Return whether a file was written while it was read without locks; the next connection locks."""
        if self._reader is None or not self._reader.changed():
            return False
        self.engine.dispose()
        return True


def reason(error: Exception, engine: Engine | None = None) -> str:
    """Return on one line why a database refused, and what helps if the engine tells."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    text = " ".join(str(cause).split())
    if text == "attempt to write a readonly database" and engine is not None and engine.url.database:
        return "; ".join(filter(None, (text, unwritable(engine.url.database))))
    if text.startswith("UNIQUE constraint failed: tasks"):
        return f"a damaged task is in the way ({text}); `gemmtune campaigns NEW merge OLD` copies what is whole"
    if text == "unable to open database file":
        return f"{text}; its folder must exist and be writable"
    if text == "database or disk is full":
        return f"{text}; make room, and give the command again: it goes on from what is stored"
    if isinstance(error, ModuleNotFoundError) and error.name == "psycopg":
        return f"{text}; {install_command('postgres')}"
    return text
