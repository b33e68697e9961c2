"""News between drivers on a PostgreSQL server: claims were given back, so that results are stored."""

import time
from contextlib import suppress
from typing import Any

from sqlalchemy import Connection, Engine, event, func, select
from sqlalchemy.exc import SQLAlchemyError

_CHANNEL = "gemmtune_claims"
_RETRY_SECONDS = 5.0  # between two attempts to listen


class News:
    """Notices of one driver to all others on its database, by LISTEN and NOTIFY.

    They only save time: where a server, a driver of another package than psycopg or a pooler between passes none on,
    waiting takes its whole time, and the caller looks for itself.
    """

    def __init__(self, engine: Engine, owner: str) -> None:
        """Listen from the first wait on; `owner` is the name of this driver."""
        self._engine = engine
        self._owner = owner
        self._connection: Connection | None = None
        self._tried = -_RETRY_SECONDS
        event.listen(engine, "engine_disposed", lambda _engine: self.close())

    def send(self, connection: Connection) -> None:
        """Tell the other drivers once the transaction is committed."""
        connection.execute(select(func.pg_notify(_CHANNEL, self._owner)))

    def wait(self, seconds: float) -> bool:
        """Wait for a notice, at most so long; return whether there was one since the last call."""
        listening = self._listening()
        if listening is None:
            time.sleep(seconds)
            return False
        try:
            until, left = time.monotonic() + seconds, seconds
            while found := [notice.payload for notice in listening.notifies(timeout=left, stop_after=1)]:
                if any(owner != self._owner for owner in found):
                    return True
                left = max(0.0, until - time.monotonic())
            return False
        except Exception:  # psycopg's, which may not be installed: the connection is lost
            self.close()
            return True  # look: what was told meanwhile is lost, too

    def _listening(self) -> Any:  # noqa: ANN401 (psycopg's, which may not be installed)
        """Return psycopg's connection that listens; None where there is none."""
        if self._connection is None and time.monotonic() - self._tried >= _RETRY_SECONDS:
            self._tried = time.monotonic()
            try:
                self._connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
                self._connection.exec_driver_sql(f"LISTEN {_CHANNEL}")
            except SQLAlchemyError:
                self.close()  # it was lost before it listened
        found = None if self._connection is None else self._connection.connection.driver_connection
        return found if hasattr(found, "notifies") else None

    def close(self) -> None:
        """Listen no longer, until the next wait."""
        if self._connection is not None:
            with suppress(SQLAlchemyError):
                self._connection.invalidate()
                self._connection.close()
            self._connection = None
