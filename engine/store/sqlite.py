"""All that is particular to SQLite; nothing here does anything for another database."""

from __future__ import annotations

from sqlalchemy import Connection, Engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.pool import ConnectionPoolEntry

from gemmtune.engine.store.terms import WRITES

__all__ = ["set_terms", "set_wal"]


def set_terms(engine: Engine) -> None:
    """Set the terms of every connection to come: durability, waiting for another writer, transactions."""
    if engine.dialect.name != "sqlite":
        return

    @event.listens_for(engine, "connect")
    def configure(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself, `begin` does
        cursor = connection.cursor()
        cursor.execute("PRAGMA busy_timeout=60000")  # milliseconds; another process writes for a few of them
        cursor.execute("PRAGMA synchronous=NORMAL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A writer takes its lock first: one that reads and then writes would fail if another wrote in between.
        writes = connection.get_execution_options().keys() & WRITES.keys()
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def set_wal(engine: Engine) -> None:
    """Let readers and a writer work side by side; the file remembers."""
    if engine.dialect.name != "sqlite":
        return
    connection = engine.raw_connection()  # no transaction: the mode cannot change inside one
    try:
        connection.cursor().execute("PRAGMA journal_mode=WAL")
    finally:
        connection.close()
