"""Errors of databases: which a transaction is tried again after, and which says that a role may not."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, ProgrammingError, SQLAlchemyError

from gemmtune.engine.store import dialects


class RefusedError(Exception):
    """An error of psycopg, which has the state of the server."""

    def __init__(self, state, text="refused"):
        super().__init__(text)
        self.sqlstate = state


class SqliteRefusedError(sqlite3.OperationalError):
    """An error of SQLite, whose code may be an extended one."""

    def __init__(self, code):
        super().__init__("refused")
        self.sqlite_errorcode = code


def raised(cause, kind=OperationalError, **given):
    return kind("INSERT", {}, cause, **given)


@pytest.mark.parametrize(
    ("error", "locked"),
    [
        (raised(RefusedError("55P03")), True),
        (raised(RefusedError("42501")), False),
        (raised(RefusedError(None)), False),
        (raised(Exception("no state")), False),
        (raised(SqliteRefusedError(sqlite3.SQLITE_BUSY)), True),
        (raised(SqliteRefusedError(sqlite3.SQLITE_BUSY_SNAPSHOT)), True),
        (raised(SqliteRefusedError(sqlite3.SQLITE_LOCKED)), False),
        (raised(SqliteRefusedError(sqlite3.SQLITE_CORRUPT)), False),
        (raised(sqlite3.OperationalError("of an old Python")), False),
        (SQLAlchemyError("no driver's error"), False),
    ],
)
def test_a_lock_that_another_process_holds_is_told_from_other_errors(error, locked):
    assert dialects.is_locked(error) is locked


@pytest.mark.parametrize(
    ("error", "forbidden"),
    [
        (raised(RefusedError("42501"), ProgrammingError), True),
        (raised(RefusedError("55P03"), ProgrammingError), False),
        (raised(sqlite3.OperationalError("readonly")), False),
        (RefusedError("42501"), False),
        (None, False),
    ],
)
def test_a_role_without_rights_is_told_from_other_errors(error, forbidden):
    assert dialects.is_forbidden(error) is forbidden


@pytest.mark.parametrize(
    ("name", "error", "lost"),
    [
        ("postgresql", raised(RefusedError("57P01")), True),
        ("postgresql", raised(RefusedError("x"), InterfaceError, connection_invalidated=True), True),
        ("postgresql", raised(RefusedError("x"), InterfaceError), False),
        ("postgresql", raised(RefusedError("x"), DBAPIError), False),
        ("postgresql", SQLAlchemyError("x"), False),
        ("sqlite", raised(sqlite3.OperationalError("disk I/O error")), False),
    ],
)
def test_a_lost_connection_is_one_to_a_server(name, error, lost):
    assert dialects.is_connection_loss(SimpleNamespace(dialect=SimpleNamespace(name=name)), error) is lost


@pytest.mark.parametrize(
    ("text", "starting"),
    [
        ("FATAL:  the database system is starting up", True),
        ("FATAL:  the database system is not yet accepting connections", True),
        ("FATAL:  password authentication failed", False),
    ],
)
def test_a_server_that_starts_up_is_told_by_its_words(text, starting):
    assert dialects.is_starting(raised(RefusedError(None, text))) is starting
