"""Write to standard output and standard error, whatever they are and whatever the text holds."""

import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

_PLAIN = str.maketrans({"─": "-", "–": "-", "×": "x", "µ": "u", "≤": "<=", "…": "..."})
"""Signs of our own for streams that lack them."""

_PASSWORD = re.compile(r"(postgres[\w+]*://[^\s:/@]*:)(?:[^\s@]*|[^/@\n]*)(?=@)|([?&]password=)[^\s&'\"]+")
_LONGEST_LINE = 4000  # characters of a notice


def visible(text: str) -> str:
    """Return a text whose control characters stand as escapes, so that a terminal shows and does not obey them."""
    if all(line.isprintable() for line in text.split("\n")):
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)


def without_passwords(text: str) -> str:
    """Return a text with *** for each password in the URL of a database."""
    return _PASSWORD.sub(r"\1\2***", text)


def one_line(text: str) -> str:
    """Return a text in one line without control characters, cut where it is long."""
    line = visible(" ".join(text.split()))
    return line if len(line) <= _LONGEST_LINE else f"{line[:_LONGEST_LINE]}…"


def print_text(text: str, paint: Callable[[str], str] = str) -> None:
    """Print lines on standard output, at once; a character that its encoding lacks stands as an escape.

    `paint` adds a terminal's colours to the text.

    Raises:
        OSError: standard output is closed, or its disk is full.
    """
    _write(sys.stdout, paint(visible(text)))


def print_json(record: Mapping[str, object]) -> None:
    """Print one JSON object on standard output; raises as `print_text`."""
    text = json.dumps(record, indent=2, ensure_ascii=False)
    if not all(line.isprintable() for line in text.split("\n")):  # json.dumps escapes those below U+0020 alone
        text = "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)
    try:
        text.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(record, indent=2)
    _write(sys.stdout, text)


def print_notice(line: str) -> None:
    """Print one line on standard error, at once; where that fails, nobody can be told and work goes on."""
    try:
        _write(sys.stderr, one_line(line))
    except OSError:
        silence()


def silence() -> None:
    """Give up the standard streams that fail, so that Python does not complain of them at exit."""
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            setattr(sys, name, io.StringIO())


def _write(stream: TextIO | None, text: str) -> None:
    if stream is None:  # closed before Python started
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    encoding, text = stream.encoding or "utf-8", without_passwords(text)
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_PLAIN).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(f"{text}\n")
    stream.flush()
