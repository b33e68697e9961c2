"""Read files that others wrote: bounded in size and depth, in UTF-8, each key of an object once."""

import codecs
import io
import json
import os
import re
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from gzip import BadGzipFile, GzipFile
from pathlib import Path
from typing import BinaryIO

from gemmtune.engine.io.numbers import MOST_INTEGER, shown
from gemmtune.engine.records.errors import UsageError

_MOST_BYTES = 2**28
"""Largest size of a file, as it is and decompressed."""
_MOST_RATIO = 100
"""Largest ratio of decompressed to compressed bytes; a recorded landscape has about 6."""
_CHUNK = 2**20
_MOST_LEVELS = 64
"""Deepest nesting of lists and objects."""
_DOTTED = re.compile(rf"(?<![\w-])(?:(?:[\w-]+|\"[^\"\n]*\"|'[^'\n]*')[ \t]*\.[ \t]*){{{_MOST_LEVELS}}}")
"""Dotted key of too many parts, which tomllib would read in quadratic time."""
_HALF_A_PAIR = re.compile("[\ud800-\udfff]")


def read_text(path: Path, what: str, error: type[UsageError] = UsageError) -> str:
    """Return the text of a file; decompress it if its name ends in .gz.

    Args:
        path: the file.
        what: noun of the file for messages, such as `campaign`.
        error: kind of error to raise.

    Raises:
        UsageError: the file cannot be read, is too large, is not UTF-8 or not whole gzip.
    """
    data = bytearray()
    with _naming(path, what, error), open(path, "rb", opener=_open) as raw:
        for chunk in _chunks(raw, _whole(raw, path), path, what, error):
            data += chunk
        return data.decode("utf-8-sig")


def read_bytes(path: Path, what: str, error: type[UsageError] = UsageError) -> bytes:
    """Return the content of a file, compressed or not; arguments and errors as of `read_text`."""
    with _naming(path, what, error), open(path, "rb", opener=_open) as raw:
        return b"".join(_chunks(raw, raw, path, what, error))


def text_pieces(data: bytes, path: Path, what: str, error: type[UsageError] = UsageError) -> Iterator[str]:
    """Yield the text of what `read_bytes` returned, piece by piece; arguments and errors as of `read_text`."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    with _naming(path, what, error), io.BytesIO(data) as raw:
        for chunk in _chunks(raw, _whole(raw, path), path, what, error):
            yield decoder.decode(chunk)
        yield decoder.decode(b"", final=True)


def _open(path: str, flags: int) -> int:
    """Open a file; a named pipe that nobody writes to is empty, and does not wait for a writer."""
    found = os.open(path, flags | os.O_NONBLOCK)
    os.set_blocking(found, True)
    return found


def _whole(raw: BinaryIO, path: Path) -> BinaryIO | GzipFile:
    """Return the stream of a file's decompressed bytes."""
    return GzipFile(fileobj=raw) if path.suffix == ".gz" else raw


def _chunks(
    raw: BinaryIO, stream: BinaryIO | GzipFile, path: Path, what: str, error: type[UsageError]
) -> Iterator[bytes]:
    """Yield the bytes of a stream up to the bounds; it reads from `raw`, or is it."""
    size = 0
    while chunk := stream.read(_CHUNK):
        size += len(chunk)
        if size > _MOST_BYTES:
            raise error(f"{what} {path} holds more than {_MOST_BYTES} bytes; split it")
        if stream is not raw and size > _CHUNK + _MOST_RATIO * raw.tell():
            raise error(f"{what} {path} expands to more than {_MOST_RATIO} times its size; decompress it first")
        yield chunk


@contextmanager
def _naming(path: Path, what: str, error: type[UsageError]) -> Iterator[None]:
    """Name the file that cannot be read in the block."""
    try:
        yield
    except (BadGzipFile, EOFError, zlib.error) as refused:
        raise error(f"{what} {path} is not whole gzip ({refused}); .gz must end no other file's name") from None
    except UnicodeDecodeError as refused:
        raise error(f"{what} {path} is not text in UTF-8 ({refused})") from None
    except (OSError, ValueError) as refused:  # ValueError: a path with a NUL
        reason = refused.strerror if isinstance(refused, OSError) else refused
        raise error(f"cannot read {what} {path}: {reason}") from None


def parse_json(text: str, where: str, error: type[UsageError] = UsageError) -> object:
    """Return the value of a JSON text.

    Args:
        text: the text.
        where: what begins every message, such as the file's name.
        error: kind of error to raise.

    Raises:
        UsageError: it is not JSON, an object has a key twice, or the value is out of bounds.
    """

    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        record = dict(pairs)
        if len(record) < len(pairs):
            keys = [key for key, _ in pairs]
            raise error(f"{where}: field {next(k for k in keys if keys.count(k) > 1)!r} stands twice in one object")
        return record

    try:
        return _within_bounds(json.loads(text, object_pairs_hook=unique), where, error)
    except json.JSONDecodeError as refused:
        body = text.strip()
        if not body:
            raise error(f"{where} is empty") from None
        if body[0] in "[{" and (body[-1] not in "]}" or refused.pos >= len(text.rstrip())):
            raise error(f"{where} is truncated: it ends at line {len(text.splitlines())} inside its JSON") from None
        raise error(f"{where} is not JSON at line {refused.lineno}: {refused.msg}") from None
    except (RecursionError, ValueError) as refused:
        raise error(f"{where} is not JSON: {_reason(refused)}") from None


def parse_toml(text: str, where: str, error: type[UsageError] = UsageError) -> dict[str, object]:
    """Return the table of a TOML text; arguments and errors as of `parse_json`."""
    if _DOTTED.search(text):
        raise error(f"{where} is nested more than {_MOST_LEVELS} levels deep")
    try:
        content = tomllib.loads(text)
    except (RecursionError, ValueError) as refused:
        raise error(f"{where} is not TOML: {_reason(refused)}") from None
    _within_bounds(content, where, error)
    return content


def is_text(text: str) -> bool:
    """Return whether a text can be written; one with half a surrogate pair cannot."""
    return text.isascii() or not _HALF_A_PAIR.search(text)


def _reason(refused: Exception) -> str:
    if isinstance(refused, RecursionError):
        return f"it is nested more than {_MOST_LEVELS} levels deep"
    return str(refused).partition(";")[0]  # behind it stands Python's own way out, for an integer of 4300 digits


def _within_bounds(value: object, where: str, error: type[UsageError]) -> object:
    """Return a value without deep nesting, integers of more than 64 bits, and halves of surrogate pairs."""
    level = [value]
    for _ in range(_MOST_LEVELS):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below += each
                below += each.values()
            elif isinstance(each, list):
                below += each
        texts = [each for each in level if isinstance(each, str)]
        if not is_text("".join(texts)):
            raise error(f"{where}: {shown(next(each for each in texts if not is_text(each)))} is not Unicode text")
        for each in (each for each in level if isinstance(each, int)):
            if not -MOST_INTEGER <= each <= MOST_INTEGER:
                raise error(f"{where}: {shown(each)} is not an integer of 64 bits")
        if not below:
            return value
        level = below
    raise error(f"{where} is nested more than {_MOST_LEVELS} levels deep")
