"""Open a SQLite file or a PostgreSQL server as a database of gemmtune: check its tables, or make them."""

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import Connection, Index, Table, insert, inspect, select
from sqlalchemy.exc import SQLAlchemyError

from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.store import schema
from gemmtune.engine.store.boards import tables as tables_of_boards
from gemmtune.engine.store.connection import Transactions, reason
from gemmtune.engine.store.dialects import index_names, is_forbidden, make_engine, read_instead, url_of
from gemmtune.engine.store.schema import Addition
from gemmtune.engine.store.sqlite_reader import HeldFile, SqliteReader

_BACKENDS = ("sqlite", "postgresql")


def open_transactions(
    url: str, read_only: bool, patience_seconds: float, notify: Callable[[str], None] | None
) -> Transactions:
    """Return the transactions of a database whose tables are there; arguments and errors as of `Database.open`."""
    try:
        parsed = url_of(url)
        if parsed.get_backend_name() not in _BACKENDS:
            raise StoreError(
                f"cannot open database {parsed.render_as_string(hide_password=True)}: "
                f"{parsed.get_backend_name()} is not one of {', '.join(_BACKENDS)}"
            )
        url = parsed.render_as_string(hide_password=True)
        file = parsed.database if parsed.get_backend_name() == "sqlite" and not parsed.query else None
        if file and Path(file).is_dir():
            name = Path(file) / "measurements.db"
            raise StoreError(f"cannot open database {file}: it is a folder; name its file, such as {name}")
        reader = SqliteReader(file) if file and read_only else None
        engine = make_engine(parsed, reader)
    except UnicodeEncodeError:
        raise StoreError(f"cannot open database {url!a}: its name is not UTF-8 text") from None
    except (SQLAlchemyError, ImportError) as error:
        raise StoreError(f"cannot open database {url}: {reason(error)}") from None
    if file and read_only and not Path(file).exists():
        raise StoreError(f"no database {file}; `gemmtune tune` makes one")
    held = HeldFile(engine, file) if file and file != ":memory:" and reader is None else None
    transactions = Transactions(engine, patience_seconds, reader, held)
    transactions.notify = notify or transactions.notify
    try:
        _prepare(transactions, read_only)
    except StoreError:
        engine.dispose()
        raise
    return transactions


def _prepare(transactions: Transactions, read_only: bool) -> None:
    """Check the schema, and make the tables where there are none."""
    if transactions.read(lambda connection: _has_tables(connection, transactions.name)):
        for each in [] if read_only else transactions.read(_missing):
            _add(transactions, each)
        if lacked := transactions.read(_lacked_of_campaigns):
            values = {f"campaigns.{name}": schema.ADDED_TO_CAMPAIGNS[name][1] for name in lacked}
            read_instead(transactions.engine, values)
        columns = transactions.read(_columns)
        if schema.DIGEST not in columns:
            read_instead(transactions.engine, {f"{name}.{schema.DIGEST}": "NULL" for name in schema.RECORDS})
        if schema.TIME not in columns:
            read_instead(
                transactions.engine, {f"measurements.{schema.TIME}": schema.json_time("measurements.estimate")}
            )
        return
    if read_only:
        raise StoreError(f"database {transactions.name} is empty; `gemmtune tune` fills one")
    transactions.set_wal()

    def write(connection: Connection) -> None:
        if not _has_tables(connection, transactions.name):  # another process may have been faster
            schema.indexes(connection.dialect.name)  # made by their first use, and then a part of METADATA
            schema.METADATA.create_all(connection)
            if connection.dialect.name == "postgresql":
                schema.SHARED.create_all(connection)
                for each in schema.TIMES:
                    connection.exec_driver_sql(each.statement)
            connection.execute(insert(schema.schema_version), {"version": schema.VERSION})

    transactions.write(write)


def _missing(connection: Connection) -> list[Table | Index | Addition]:
    """Return what a database of an older version lacks, and would only be slower without."""
    on_server = connection.dialect.name == "postgresql"
    held, columns = index_names(connection), _columns(connection)
    shared = schema.SHARED.tables.values() if on_server else ()
    due = (schema.asked, schema.campaigns, *tables_of_boards.TABLES, *shared)
    tables = [table for table in due if not inspect(connection).has_table(table.name)]
    tables += [] if schema.DIGEST in columns else [schema.measurements]
    tables += [schema.campaigns] if _lacked_of_campaigns(connection) else []
    times = [each for each in schema.TIMES if on_server and each.name not in held | columns]
    return [*tables, *times, *(index for index in schema.indexes(connection.dialect.name) if index.name not in held)]


def _columns(connection: Connection) -> set[str]:
    """Return the names of the columns of measurements."""
    found = connection.exec_driver_sql("SELECT * FROM measurements LIMIT 0")  # inspection fails on a damaged type
    return {*found.keys()}


def _lacked_of_campaigns(connection: Connection) -> list[str]:
    """Return the columns that the table of campaigns, where there is one, does not have."""
    if not inspect(connection).has_table(schema.campaigns.name):
        return []
    held = connection.exec_driver_sql("SELECT * FROM campaigns LIMIT 0").keys()
    return [name for name in schema.ADDED_TO_CAMPAIGNS if name not in held]


def _add(transactions: Transactions, missing: Table | Index | Addition) -> None:
    """Make what a database lacks; an index that only the owner of its table may make is done without."""

    def write(connection: Connection) -> None:
        if missing.name not in [each.name for each in _missing(connection)]:
            return  # another process was faster
        if missing is schema.measurements:
            _add_digests(connection)
        elif missing is schema.campaigns and (lacked := _lacked_of_campaigns(connection)):
            for name in lacked:
                kind, value = schema.ADDED_TO_CAMPAIGNS[name]
                connection.exec_driver_sql(f"ALTER TABLE campaigns ADD COLUMN {name} {kind} NOT NULL DEFAULT {value}")
        elif isinstance(missing, Addition):
            connection.exec_driver_sql(missing.statement)
        else:
            missing.create(connection)

    try:
        transactions.write(write)
    except StoreError as error:
        if not is_forbidden(error.__cause__):
            raise
        if isinstance(missing, Table):
            way = "an older version made it: let its owner open it once in this one (`gemmtune campaigns DB merge DB`)"
            raise StoreError(f"{error}; {way}") from None
        transactions.notify(f"{error}; reading is slower without {missing.name}, which its owner's next campaign makes")


def _add_digests(connection: Connection) -> None:
    for name in schema.RECORDS:
        connection.exec_driver_sql(f"ALTER TABLE {name} ADD COLUMN {schema.DIGEST} TEXT")
    word = """UPDATE finals SET content = replace(content, ',"refuted":[', ',"failed":[')"""
    connection.exec_driver_sql(word)  # a final that is merged again would differ by it


def _has_tables(connection: Connection, name: str) -> bool:
    names = inspect(connection).get_table_names()
    if not names:
        return False
    if schema.schema_version.name not in names:
        raise StoreError(f"{name} is a database of something else ({names[0]}, ...); give gemmtune its own")
    found = connection.execute(select(schema.schema_version.c.version)).scalar_one()
    if found != schema.VERSION:
        other = f"database {name} has schema {found}, this gemmtune knows schema {schema.VERSION}"
        raise StoreError(f"{other}; use the gemmtune that wrote it, or another database")
    if connection.dialect.name == "sqlite":
        made_by = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
        for table, text in connection.exec_driver_sql(made_by):
            whole = all(part in str(text) for part in ("id INTEGER NOT NULL", "PRIMARY KEY (id)"))  # may be bytes
            if table in schema.RECORDS and not whole:
                raise StoreError(f"database {name} is damaged: table {table} has lost its ids; restore a copy of it")
    return True
