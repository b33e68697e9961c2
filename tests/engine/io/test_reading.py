"""Files that others wrote are read whole, or refused at once."""

from __future__ import annotations

import gzip
import os
import threading
import time
from pathlib import Path

import pytest

from gemmtune.engine.io import reading
from gemmtune.engine.io.reading import is_text, parse_json, parse_toml, read_bytes, read_text, text_pieces
from gemmtune.engine.records.errors import TableError, UsageError


@pytest.mark.parametrize("read", [read_text, read_bytes])
def test_a_named_pipe_without_a_writer_is_empty_and_not_waited_for(tmp_path, read):
    os.mkfifo(tmp_path / "run.json")
    found: list[object] = []
    reader = threading.Thread(target=lambda: found.append(read(tmp_path / "run.json", "record")), daemon=True)
    reader.start()
    reader.join(10)
    assert [*map(len, found)] == [0]


def test_a_pipe_whose_writer_is_slow_is_read_to_its_end():
    outgoing, incoming = os.pipe()

    def write():
        for part in (b"first ", b"second"):
            time.sleep(0.1)
            os.write(incoming, part)
        os.close(incoming)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert read_text(Path(f"/dev/fd/{outgoing}"), "record") == "first second"
    finally:
        writer.join()
        os.close(outgoing)


def pieces(path, what, error=UsageError):
    return "".join(text_pieces(path.read_bytes(), path, what, error))


@pytest.mark.parametrize("read", [read_text, pieces])
@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.txt", b"caf\xc3", "record .*a.txt is not text in UTF-8"),
        ("a.txt", b"caf\xff", "record .*a.txt is not text in UTF-8"),
        ("a.gz", b"no gzip", "record .*a.gz is not whole gzip .*; .gz must end no other file's name"),
        ("a.gz", gzip.compress(b"text")[:-4], "is not whole gzip"),
        ("a.gz", gzip.compress(b"text" * 9)[:12], "is not whole gzip"),
        (
            "a.gz",
            gzip.compress(bytes(2**21)),
            "record .*a.gz expands to more than 100 times its size; decompress it first",
        ),
    ],
    ids=range(6),
)
def test_a_file_that_is_no_text_is_refused_with_its_name(tmp_path, read, name, content, said):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(TableError, match=said):
        read(tmp_path / name, "record", TableError)


@pytest.mark.parametrize("read", [read_text, pieces])
def test_a_byte_order_mark_and_compression_are_no_part_of_a_text(tmp_path, read, monkeypatch):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbf" + "é×".encode())
    (tmp_path / "a.gz").write_bytes(gzip.compress("é×".encode() * 3))
    monkeypatch.setattr(reading, "_CHUNK", 3)  # a character may lie in two
    assert read(tmp_path / "a.txt", "record") == "é×"
    assert read(tmp_path / "a.gz", "record") == "é×é×é×"
    assert read_bytes(tmp_path / "a.gz", "record")[:2] == b"\x1f\x8b"


def test_a_file_has_a_largest_size(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "_MOST_BYTES", 5)
    (tmp_path / "a.txt").write_text("12345")
    assert read_text(tmp_path / "a.txt", "record") == "12345"
    (tmp_path / "a.txt").write_text("123456")
    for read in (read_text, read_bytes, pieces):
        with pytest.raises(UsageError, match="txt holds more than 5 bytes; split it"):
            read(tmp_path / "a.txt", "record")
    for path, said in ((tmp_path / "none", "No such file"), (tmp_path, "Is a directory"), (Path("a\0"), "null byte")):
        with pytest.raises(UsageError, match=f"cannot read record .*{said}"):
            read_text(path, "record")


DEEP = {levels: "[" * levels + "]" * levels for levels in (62, 63, 64, 65)}
MOST = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f is empty"),
        (" \n", "f is empty"),
        ("{", "f is truncated: it ends at line 1 inside its JSON"),
        ('{"a": [1,\n2', "f is truncated: it ends at line 2 inside its JSON"),
        ('[1, "x', "f is truncated"),
        ("x", "f is not JSON at line 1: Expecting value"),
        ("[1]\n[2]", "f is not JSON at line 2: Extra data"),
        ("[1,]", "f is not JSON at line 1"),
        ('{"a": 1, "b": 2, "a": 3}', "f: field 'a' stands twice in one object"),
        ('[{"x": {"b": 1, "b": 1}}]', "f: field 'b' stands twice in one object"),
        (DEEP[65], "f is nested more than 64 levels deep"),
        ("[" * 100_000, "f is not JSON: it is nested more than 64 levels deep|f is truncated"),
        (f"[{MOST + 1}]", f"f: {MOST + 1} is not an integer of 64 bits"),
        (f"[-{MOST + 1}]", "is not an integer of 64 bits"),
        ("1" * 5000, "f is not JSON: Exceeds the limit .*digits"),
        ('["a", "\\ud800"]', r"f: '\\ud800' is not Unicode text"),
        ('{"\\udfff": 1}', "is not Unicode text"),
    ],
)
def test_a_json_text_is_refused_for_what_is_wrong(text, said):
    with pytest.raises(TableError, match=said) as refused:
        parse_json(text, "f", TableError)
    assert "\n" not in str(refused.value)
    assert "set_int_max" not in str(refused.value)


def test_json_within_the_bounds_is_read():
    assert parse_json(f' {{"a": [{MOST}, -{MOST}, 1.5, true, null, "\\ud83d\\ude00"]}} ', "f") == {
        "a": [MOST, -MOST, 1.5, True, None, "😀"]
    }
    parse_json(DEEP[64], "f")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = ", "f is not TOML: Invalid value"),
        ("a = 1\na = 2", "f is not TOML: Cannot overwrite a value"),
        (f"a = {DEEP[64]}", "f is nested more than 64 levels deep"),
        (".".join("a" * 66) + " = 1", "f is nested more than 64 levels deep"),
        ("[" + ".".join(['"a b"'] * 66) + "]", "f is nested more than 64 levels deep"),
        (f"a = {MOST + 1}", "is not an integer of 64 bits"),
    ],
)
def test_a_toml_text_is_refused_for_what_is_wrong(text, said):
    with pytest.raises(UsageError, match=said):
        parse_toml(text, "f")


def test_toml_within_the_bounds_is_read():
    assert parse_toml(f"a = {DEEP[63]}\nb.c = 2026-11-26", "f")["a"] is not None
    assert len(parse_toml(".".join("a" * 60) + " = 1", "f")) == 1


@pytest.mark.parametrize(("text", "good"), [("", True), ("aé😀", True), ("\ud800", False), ("a\udfff", False)])
def test_half_a_surrogate_pair_is_no_text(text, good):
    assert is_text(text) is good
    assert is_text("\ud7ff\ue000")
