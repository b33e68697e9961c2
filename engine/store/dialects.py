"""Settings and SQL particular to SQLite and to PostgreSQL."""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache

from sqlalchemy import URL, Connection, Engine, Executable, TableClause, create_engine, event, make_url
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import ConnectionPoolEntry

from gemmtune.engine.store.sqlite_reader import SqliteReader

_LOCK = 0x67656D6D  # "gemm"; the number of an advisory lock holds for the whole database
_LOCKED_MILLISECONDS = 1000  # without an answer before somebody is told; another process writes for a few of them
_SILENT_MILLISECONDS = 20_000  # of a writer whose process was stopped, or whose host is gone, until others go on
_LOCK_NOT_AVAILABLE = "55P03"  # state of PostgreSQL
_INSUFFICIENT_PRIVILEGE = "42501"
_CONNECT_ARGUMENTS: dict[str, str | int] = {
    "client_encoding": "utf8",
    "connect_timeout": 10,  # seconds; a host that is gone says nothing
    "keepalives_idle": 30,  # seconds; a lost connection is noticed within two minutes, not two hours
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,  # milliseconds
}


def url_of(text: str) -> URL:
    """Read a database's URL, or the path of a SQLite file.

    Raises:
        SQLAlchemyError: the text contains :// and is not a URL.
    """
    if "://" not in text:
        return URL.create("sqlite", database=text)
    url = make_url(text)
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def make_engine(url: URL, reader: SqliteReader | None = None) -> Engine:
    """Return an engine whose connections are durable and notice a lost server.

    Args:
        url: the database.
        reader: makes the connections to a SQLite file that is only read.

    Raises:
        SQLAlchemyError: no driver serves the URL.
        ImportError: the driver's package is not installed.
    """
    if url.get_backend_name() == "postgresql":
        logging.getLogger("psycopg").setLevel(logging.ERROR)  # it warns of a pipeline whose error is reported anyway
        return create_engine(url, connect_args={k: v for k, v in _CONNECT_ARGUMENTS.items() if k not in url.query})
    engine = create_engine(url)
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        if reader is not None:
            event.listen(engine, "do_connect", reader.connect)
    return engine


def accept_any_text(engine: Engine) -> None:
    """Read a text of SQLite that is not UTF-8 as bytes, in place of failing for all rows; reading takes longer."""

    def accept(connection: sqlite3.Connection, _entry: ConnectionPoolEntry) -> None:
        connection.text_factory = _text_or_bytes

    event.listen(engine, "connect", accept)
    engine.dispose()


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def read_instead(engine: Engine, columns: Mapping[str, str]) -> None:
    """Read other SQL, such as NULL, for columns that a database of an older version lacks, and may not get.

    Args:
        engine: the database.
        columns: SQL to read by the names of columns, such as `finals.digest`.
    """

    def replace(
        _connection: Connection, _cursor: object, statement: str, parameters: object, *_context: object
    ) -> tuple[str, object]:
        for name, instead in columns.items():
            statement = statement.replace(name, instead)
        return statement, parameters

    event.listen(engine, "before_cursor_execute", replace, retval=True)


def _configure_sqlite(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None  # `begin` begins transactions; the driver must not
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout={_LOCKED_MILLISECONDS}")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


def begin(connection: Connection, *, write: bool, durable: bool = True) -> None:
    """Begin a transaction; a writer waits until no other one writes, and fails after a second as `is_locked` tells.

    A transaction that reads before it writes then cannot fail because another process wrote in between. PostgreSQL
    commits ids in their order, as SQLite does, so that a reader who pages by id misses none. Where `durable` is False a
    commit does not wait for the server's disk: what a server that dies forgets must then be no loss.
    """
    if connection.dialect.name == "sqlite":
        if write:  # each statement that reads is a transaction of its own
            connection.exec_driver_sql("BEGIN IMMEDIATE")
    elif write and connection.dialect.name == "postgresql":
        settings = f"set_config('lock_timeout', '{_LOCKED_MILLISECONDS}', true)"
        settings += f", set_config('idle_in_transaction_session_timeout', '{_SILENT_MILLISECONDS}', true)"
        settings += "" if durable else ", set_config('synchronous_commit', 'off', true)"
        connection.exec_driver_sql(f"SELECT {settings}, pg_advisory_xact_lock({_LOCK})")


def set_wal(engine: Engine) -> None:
    """Let readers and one writer use a SQLite file at the same time; the file keeps the setting."""
    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:  # no transaction: the mode cannot change inside one
            connection.exec_driver_sql("PRAGMA journal_mode=WAL")


def index_names(connection: Connection) -> set[str]:
    """Return the names of all indexes; SQLAlchemy's inspection leaves out those of expressions."""
    sqlite = "SELECT name FROM sqlite_master WHERE type = 'index'"
    found = connection.exec_driver_sql(
        sqlite if connection.dialect.name == "sqlite" else "SELECT indexname FROM pg_indexes"
    )
    return set(found.scalars())


def is_connection_loss(engine: Engine, error: SQLAlchemyError) -> bool:
    """Return whether the server or the connection to it is lost, so that a transaction may be tried again."""
    return engine.dialect.name == "postgresql" and (
        isinstance(error, OperationalError) or (isinstance(error, DBAPIError) and error.connection_invalidated)
    )


def is_forbidden(error: BaseException | None) -> bool:
    """Return whether a server refused because of the role's rights."""
    return isinstance(error, DBAPIError) and getattr(error.orig, "sqlstate", None) == _INSUFFICIENT_PRIVILEGE


def is_starting(error: SQLAlchemyError) -> bool:
    """Return whether a server takes no connection yet; psycopg has no state of a refused connection, only its text."""
    return any(part in str(error) for part in ("database system is starting up", "not yet accepting connections"))


def is_locked(error: SQLAlchemyError) -> bool:
    """Return whether another process holds the lock, so that a transaction may be tried again."""
    cause = error.orig if isinstance(error, DBAPIError) else None
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF == sqlite3.SQLITE_BUSY
    return getattr(cause, "sqlstate", None) == _LOCK_NOT_AVAILABLE


def insert_new(connection: Connection, table: TableClause, rows: Sequence[Mapping[str, object]]) -> int:
    """Insert the rows that break no constraint of uniqueness, the first of equal ones; return their number."""
    statement = _insertion(table, connection.dialect.name)
    return int(connection.execute(statement, rows, execution_options={"preserve_rowcount": True}).rowcount)


@cache  # a campaign inserts by it once per result, and to make it takes as long as the insertion
def _insertion(table: TableClause, dialect: str) -> Executable:
    if dialect != "postgresql":
        return sqlite.insert(table).on_conflict_do_nothing()
    from sqlalchemy.dialects import postgresql  # takes a tenth of a second to import

    return postgresql.insert(table).on_conflict_do_nothing()
