"""Texts on the standard streams, whatever a stream can show."""

from __future__ import annotations

import io
import json
import sys

import pytest

from gemmtune.engine.io.printing import (
    one_line,
    print_json,
    print_notice,
    print_text,
    silence,
    visible,
    without_passwords,
)


class Broken(io.StringIO):
    encoding = "utf-8"

    def write(self, _):
        raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError


@pytest.fixture
def printed(monkeypatch):
    """Run a function, and return the bytes that it prints on a stream of ASCII."""

    def run(function, *arguments, **named):
        with monkeypatch.context() as patch:
            stream = io.TextIOWrapper(io.BytesIO(), "ascii")
            patch.setattr(sys, "stdout", stream)
            function(*arguments, **named)
            return stream.buffer.getvalue()

    return run


@pytest.mark.parametrize(
    ("text", "found"), [("a\nb é", "a\nb é"), ("\x1b[2J\ta\r", r"\x1b[2J\ta\r"), ("a\u2028b\u202e", r"a\u2028b\u202e")]
)
def test_control_characters_stand_as_escapes(text, found):
    assert visible(text) == found


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql+psycopg://me:p:a/s&s@host:5432/db", "postgresql+psycopg://me:***@host:5432/db"),
        ("'postgres://:x@h/db?password=y&z=1'", "'postgres://:***@h/db?password=***&z=1'"),
        ("'postgresql://me:my word@h/db'", "'postgresql://me:***@h/db'"),
        ("postgresql://host:5432/db of gpu@host", "postgresql://host:5432/db of gpu@host"),
        ("postgresql://me@host:5432/db https://host:80/a@b", "postgresql://me@host:5432/db https://host:80/a@b"),
    ],
)
def test_no_password_is_printed(printed, url, shown):
    assert without_passwords(f"to go on: {url} x") == f"to go on: {shown} x"
    assert printed(print_text, url) == f"{shown}\n".encode()
    assert printed(print_json, {url: 1}) == f'{{\n  "{shown}": 1\n}}\n'.encode()


def test_a_notice_is_one_line_and_cut_where_it_is_long():
    assert one_line(" a\n\tb\x1b ") == r"a b\x1b"
    assert one_line("x" * 4000) == "x" * 4000
    assert one_line("x" * 4001) == "x" * 4000 + "…"


def test_a_stream_that_lacks_a_sign_shows_a_plain_one(printed):
    assert printed(print_text, "─–×µ≤… é", paint=lambda text: f"<{text}>") == b"<--xu<=... \\xe9>\n"


def test_json_is_whole_on_every_stream(printed):
    record = {"a": "é\x7f\u2028", "b": [1]}
    assert json.loads(printed(print_json, record)) == record


def test_json_shows_letters_and_escapes_control_characters(capsys):
    print_json({"a": "é\x7f\u2028"})
    assert capsys.readouterr().out == '{\n  "a": "é\\u007f\\u2028"\n}\n'


def test_a_notice_goes_to_standard_error_and_a_broken_stream_is_given_up(monkeypatch, capsys):
    print_notice("two\nlines")
    assert capsys.readouterr() == ("", "two lines\n")
    broken = Broken()
    monkeypatch.setattr(sys, "stderr", broken)
    print_notice("lost")
    assert sys.stderr is not broken
    monkeypatch.setattr(sys, "stdout", broken)
    with pytest.raises(BrokenPipeError):
        print_text("lost")
    before = sys.stderr
    silence()
    assert sys.stdout is not broken
    assert sys.stderr is before


def test_a_stream_that_is_closed_is_an_error_for_a_result_alone(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    with pytest.raises(OSError, match="Bad file descriptor"):
        print_text("x")
    print_notice("x")
    assert sys.stdout is sys.stderr is None
