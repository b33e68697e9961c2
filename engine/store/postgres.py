"""All that is particular to PostgreSQL; nothing here does anything for another database."""

from __future__ import annotations

from sqlalchemy import URL, Connection, Engine, event
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError

from gemmtune.engine.store.terms import WRITES

__all__ = ["connect_arguments", "is_loss", "set_terms", "with_driver"]

_LOCK = 0x67656D6D  # "gemm"; an advisory lock's number is the whole database's
_KEPT_ALIVE: dict[str, str | int] = {
    "client_encoding": "utf8",
    "connect_timeout": 10,  # seconds; a host that is gone says nothing
    "keepalives_idle": 30,  # seconds; so that a connection that is gone is noticed in two minutes and not in two hours
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}


def with_driver(url: URL) -> URL:
    """`postgresql://` with the one driver that is known here; any other URL as it is."""
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def connect_arguments(url: URL) -> dict[str, str | int]:
    """How to connect, where the URL does not say."""
    if url.get_backend_name() != "postgresql":
        return {}
    return {name: value for name, value in _KEPT_ALIVE.items() if name not in url.query}


def set_terms(engine: Engine) -> None:
    """Let one writer in at a time, as SQLite does.

    Then ids are committed in their order, so that who reads page by page misses none, and no writer fails on a row that
    another has just written.
    """
    if engine.dialect.name != "postgresql":
        return

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        if connection.get_execution_options().keys() & WRITES.keys():
            connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")


def is_loss(engine: Engine, error: SQLAlchemyError) -> bool:
    """Whether the server, or the way to it, is gone for a while, so that a transaction may be tried again."""
    return engine.dialect.name == "postgresql" and (
        isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated)
    )
