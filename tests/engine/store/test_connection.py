"""Transactions while a server is lost, a lock is held, or a text is damaged, by a clock that sleeping moves."""

from __future__ import annotations

import sqlite3
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine
from sqlalchemy.exc import OperationalError, ProgrammingError

from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.store import connection as module
from gemmtune.engine.store.connection import Transactions, reason


class Refused(sqlite3.OperationalError):
    """Error of SQLite with a code; 5 is that of a lock."""

    def __init__(self, text, code=1):
        super().__init__(text)
        self.sqlite_errorcode = code


def raised(text, code=1):
    return OperationalError("SELECT", {}, Refused(text, code))


LOST, STARTING = raised("server closed"), raised("the database system is starting up")
LOCKED, BROKEN = raised("locked", sqlite3.SQLITE_BUSY), raised("no such column")


@pytest.fixture
def clock(monkeypatch):
    """Clock that sleeping moves; an error with the words of LOST or STARTING is a lost server's."""
    now, slept = [0.0], []

    def sleep(seconds):
        slept.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))
    monkeypatch.setattr(module, "is_connection_loss", lambda _, error: error in (LOST, STARTING))
    return SimpleNamespace(now=now, slept=slept)


@pytest.fixture
def told():
    return []


@pytest.fixture
def transactions(told):
    found = Transactions(create_engine("sqlite://"), 60.0)
    found.notify = told.append
    return found


def failing(*errors, then="done", clock=None, seconds=0.0):
    """Return work that raises these errors, one per attempt, each after some seconds, and then returns."""
    left = list(errors)

    def work(_):
        if clock is not None:
            clock.now[0] += seconds
        if left:
            raise left.pop(0)
        return then

    return work


NAME = "database sqlite://"


def test_a_lost_server_is_asked_again_with_growing_pauses(transactions, told, clock):
    assert transactions.read(failing()) == "done"
    assert transactions.read(failing(*[LOST] * 8)) == "done"
    assert clock.slept == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert told == [
        f"{NAME} is lost: server closed; trying for 60 s to reach it again",
        f"{NAME} is back after 16.3 s, with all that was stored",
    ]


@pytest.mark.parametrize(("patience", "pauses"), [(0.7, 3), (0.71, 4), (0.0, 0)])
def test_a_server_that_stays_lost_is_an_error_after_the_patience(transactions, clock, patience, pauses):
    transactions.read(failing())
    transactions.patience_seconds = patience
    with pytest.raises(
        StoreError, match=f"{NAME} is out of reach for . s .server closed.; stored measurements are safe"
    ):
        transactions.write(failing(*[LOST] * 9))
    assert len(clock.slept) == pauses


def test_a_server_that_was_never_reached_is_an_error_unless_it_starts_up(transactions, told, clock):
    with pytest.raises(StoreError, match=f"cannot open {NAME}: server closed"):
        transactions.read(failing(LOST))
    assert (told, clock.slept) == ([], [])
    assert transactions.read(failing(STARTING)) == "done"
    assert told[0].startswith(f"{NAME} is not ready: the database system is starting up; ")


@pytest.mark.parametrize(
    ("reached", "act", "verb"), [(False, "read", "open"), (True, "read", "read"), (True, "write", "write to")]
)
def test_another_error_says_what_failed_and_is_not_tried_again(transactions, clock, reached, act, verb):
    if reached:
        transactions.read(failing())
    with pytest.raises(StoreError, match=f"cannot {verb} {NAME}: no such column"):
        getattr(transactions, act)(failing(BROKEN))
    assert clock.slept == []


def test_a_lock_is_waited_for_with_one_notice(transactions, told, clock):
    assert transactions.write(failing(*[LOCKED] * 3, clock=clock, seconds=10.0)) == "done"
    assert told == [f"waiting for the {NAME}: another process has locked it"]


@pytest.mark.parametrize(("seconds", "waits"), [(30.0, 60), (29.0, 87), (60.0, 60)])
def test_a_lock_that_stays_is_an_error_after_the_patience(transactions, clock, seconds, waits):
    with pytest.raises(StoreError, match=f"another process has had {NAME} locked for {waits} s; end it, then run"):
        transactions.write(failing(*[LOCKED] * 9, clock=clock, seconds=seconds))


def test_a_text_that_is_not_utf_8_is_read_as_bytes_from_then_on(transactions, monkeypatch):
    accepted = []
    monkeypatch.setattr(module, "accept_any_text", accepted.append)
    damaged = raised("Could not decode to UTF-8 column 'reason'")
    assert transactions.read(failing(damaged)) == "done"
    assert accepted == [transactions.engine]
    with pytest.raises(StoreError, match="Could not decode to UTF-8"):
        transactions.read(failing(damaged))
    assert len(accepted) == 1


def test_a_message_that_is_no_text_is_shown_with_escapes(transactions):
    error = UnicodeDecodeError("utf-8", b"near \xff", 5, 6, "invalid")
    with pytest.raises(StoreError, match=r"cannot read database sqlite://: near \\xff"):
        transactions.read(failing(error))


def test_reading_changes_nothing_that_the_end_would_check(transactions):
    transactions._file = SimpleNamespace(fault=lambda: "its file was deleted")
    transactions.read(failing())
    transactions.check()
    with pytest.raises(StoreError, match=f"{NAME} is lost: its file was deleted; no results are written"):
        transactions.write(failing())
    with pytest.raises(StoreError, match=f"{NAME} is lost: its file was deleted; the results that were written stay"):
        transactions.check()


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (raised("two\n  lines"), "two lines"),
        (raised("unable to open database file"), "unable to open database file; its folder must exist and be writable"),
        (
            raised("UNIQUE constraint failed: tasks.space"),
            "a damaged task is in the way (UNIQUE constraint failed: tasks.space); "
            "`gemmtune campaigns NEW merge OLD` copies what is whole",
        ),
        (
            raised("database or disk is full"),
            "database or disk is full; make room, and give the command again: it goes on from what is stored",
        ),
        (raised("attempt to write a readonly database"), "attempt to write a readonly database"),
        (ProgrammingError("x", {}, Exception("no right")), "no right"),
        (ValueError("plain"), "plain"),
        (ModuleNotFoundError("No module named 'other'", name="other"), "No module named 'other'"),
    ],
)
def test_a_reason_is_one_line_with_the_way_out(error, text):
    assert reason(error) == text
    assert reason(error, create_engine("sqlite://")) == text


def test_a_missing_driver_names_the_extra():
    error = ModuleNotFoundError("No module named 'psycopg'", name="psycopg")
    assert reason(error).startswith("No module named 'psycopg'; ")
    assert "postgres" in reason(error)
