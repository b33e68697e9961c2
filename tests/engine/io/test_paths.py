"""Files by their content and names: their kinds, the file that a folder stands for, and words for all others."""

from __future__ import annotations

import json
import os

import pytest

from gemmtune.engine.io.paths import FileKind, find, find_database, json_kind, kind_of_file, refuse_empty
from gemmtune.engine.records.errors import LandscapeError, StoreError, TableError, UsageError

KINDS = [
    ("m.db", b"SQLite format 3\0...", FileKind.DATABASE),
    ("page.html", b"SQLite format 3\0...", FileKind.DATABASE),
    ("m.db", b"SQLite format 3 ", None),
    ("m.sqlite", b"", None),
    ("m.sqlite3", b"x", None),
    ("a.toml", b"", FileKind.CAMPAIGN),
    ("A.TOML", b"{}", FileKind.CAMPAIGN),
    ("empty", b"", None),
    ("empty.txt", b" \n", None),
    ("a.csv", b"", None),
    ("a.csv.gz", b"\x1f\x8b", FileKind.LANDSCAPES),
    ("a.json.gz", b"\x1f\x8b", FileKind.LANDSCAPES),
    ("a.csv", b"x,status\n", FileKind.LANDSCAPES),
    ("a.csv", b"GemmTunableOp_BFloat16_TN,tn_1", FileKind.RECORDING),
    ("a.csv", b"\xef\xbb\xbf\nGemmAndBiasTunableOp_float_TN,x", FileKind.RECORDING),
    ("a.csv", b"GemmStridedBatchedTunableOp_float_NN,x", FileKind.RECORDING),
    ("a.csv", b"Gemm,status\n", FileKind.LANDSCAPES),
    ("a.jsonl", b"{}\n", FileKind.RECORDING),
    ("a.py", b"x", FileKind.PYTHON),
    ("a.yaml", b"x", FileKind.YAML),
    ("a.yml", b"x", FileKind.YAML),
    ("a.htm", b"<!DOCTYPE html>", FileKind.PAGE),
    ("a", b"<html lang=en>", FileKind.PAGE),
    ("a", b"<html>", FileKind.OTHER),
    ("a.txt", b"notes", FileKind.OTHER),
    ("a.txt", b'{"name": 1}', FileKind.JSON),
    ("a", b" [1]", FileKind.JSON),
    ("a.json", b"3", FileKind.JSON),
    ("a.json", b"{", None),
    ("a.json", b"[" * 50_000, None),
    ("a.json", b'{"a": "' + b"x" * 2**20, None),
]


@pytest.mark.parametrize(("name", "content", "kind"), KINDS, ids=range(len(KINDS)))
def test_a_file_has_a_kind_by_its_content_and_its_name(tmp_path, name, content, kind):
    (tmp_path / name).write_bytes(content)
    assert kind_of_file(tmp_path / name) is kind


def test_a_folder_and_a_pipe_have_no_kind(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert kind_of_file(tmp_path) is kind_of_file(tmp_path / "pipe") is None


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"made_with": {}, "schema": 1, "rows": [], "ranges": []}, FileKind.INDUCTOR),
        ({"rounding_bound": 1}, FileKind.CUTE),
        ({"landscapes": [], "curves": []}, FileKind.COMPARISON),
        ({"landscapes": []}, None),
        ({"curves": []}, None),
        ({"command": "", "started_at": "", "evaluations": 1}, FileKind.RUN),
        ({"command": "", "started_at": ""}, None),
        ({"arms": [], "call": ""}, FileKind.BENCH),
        ({"arms": []}, None),
        ({"cache": {}}, FileKind.LANDSCAPES),
        ({"results": []}, FileKind.LANDSCAPES),
        ({"schema": 1, "rows": [], "ranges": []}, FileKind.TABLE),
        ({"schema": 1, "rows": []}, None),
        ({"schema": 1, "kernels": [], "table_sha256": ""}, FileKind.TRITON),
        ({"schema": 1, "kernels": []}, None),
        ({"a+b": [], "c+d": []}, FileKind.LOOKUP),
        ({"a+b": [], "c": []}, None),
        ({"a+b": {}}, None),
        ({"1": {}, "16": {}, "triton_version": "3"}, FileKind.SERVING),
        ({"1": {}, "x": {}}, None),
        ({}, None),
    ],
)
def test_a_json_object_has_a_kind_by_the_fields_of_that_kind_alone(fields, kind):
    assert json_kind(fields) is kind


def test_every_kind_has_an_article_and_a_command_that_takes_it(tmp_path):
    nouns = {kind: kind.noun for kind in FileKind}
    assert nouns[FileKind.INDUCTOR] == "an export for Inductor"
    assert nouns[FileKind.TABLE] == "a table"
    assert {noun.split()[0] for noun in nouns.values()} == {"a", "an"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def filled(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


@pytest.mark.parametrize(
    ("names", "wanted", "found"),
    [
        (["table.json", "measurements.db"], [FileKind.TABLE], "out/table.json"),
        (["table.json", "measurements.db"], [FileKind.DATABASE, FileKind.TABLE], "out/measurements.db"),
        (["table.json"], [FileKind.DATABASE, FileKind.TABLE], "out/table.json"),
        (["inductor/inductor_table.json"], [FileKind.INDUCTOR], "out/inductor/inductor_table.json"),
        (["inductor/inductor_table.json", "inductor_table.json"], [FileKind.INDUCTOR], "out/inductor_table.json"),
        (["cute/cute_table.json"], [FileKind.CUTE], "out/cute/cute_table.json"),
        (["lookup_table.json"], [FileKind.LOOKUP], "out/lookup_table.json"),
        (["comparison.json"], [FileKind.COMPARISON], "out/comparison.json"),
        (["b.csv", "a.csv.gz"], [FileKind.LANDSCAPES], "out"),
    ],
)
def test_a_folder_stands_for_the_file_of_the_kind_that_is_wanted_most(folder, names, wanted, found):
    filled(folder / "out", *names)
    assert find("out", *wanted) == find(folder / "out", *wanted).removeprefix(f"{folder}/") == found


@pytest.mark.parametrize(
    ("names", "wanted", "error", "said"),
    [
        ([], FileKind.TABLE, TableError, "out is an empty folder; a table is wanted here"),
        (["x"], FileKind.TABLE, TableError, "out is a folder without table.json; a table is wanted here"),
        (["x"], FileKind.CAMPAIGN, UsageError, r"out is a folder; a campaign file \(TOML\) is wanted here"),
        (["measurements.db"], FileKind.TABLE, TableError, "out is a folder with a database: gemmtune show, export "),
        (
            ["measurements.db"],
            FileKind.TABLE,
            TableError,
            "take it; a table is wanted here; gemmtune export out writes it",
        ),
        (["table.json"], FileKind.INDUCTOR, TableError, "gemmtune export out writes it"),
        (["table.json"], FileKind.DATABASE, StoreError, "a database is wanted here$"),
        (
            ["table.json"],
            FileKind.LANDSCAPES,
            LandscapeError,
            "out is a folder with a table: .*landscape file is wanted",
        ),
    ],
)
def test_a_folder_without_the_file_says_what_it_has_and_the_way(folder, names, wanted, error, said):
    (folder / "out").mkdir()
    filled(folder / "out", *names)
    with pytest.raises(error, match=said):
        find("out", wanted)


def test_of_two_kinds_a_folder_lacks_both_are_named(folder):
    (folder / "out").mkdir()
    filled(folder / "out", "x")
    lacks = "out is a folder with neither table.json nor measurements.db; a table or a database is wanted here"
    with pytest.raises(TableError, match=lacks):
        find("out", FileKind.TABLE, FileKind.DATABASE)


@pytest.mark.parametrize(
    ("given", "wanted", "error", "said"),
    [
        ("", FileKind.TABLE, UsageError, "the path of the table is empty"),
        (" ", FileKind.DATABASE, UsageError, "the path of the database is empty"),
        ("none", FileKind.TABLE, TableError, "no file or folder none is here; a table is wanted here$"),
        ("none", FileKind.DATABASE, StoreError, "a database is wanted here, which gemmtune tune makes$"),
        (
            "out/tabel.json",
            FileKind.TABLE,
            TableError,
            "no file or folder out/tabel.json is here: did you mean out/table",
        ),
        (
            "a:build",
            FileKind.TABLE,
            TableError,
            "model's name: .* show after --graphs; a table is wanted here",
        ),
        ("x/a.py:A.build", FileKind.DATABASE, StoreError, "model's name: .*; a database is wanted here$"),
        ("out/table.json/x", FileKind.TABLE, TableError, "no file or folder out/table.json/x is here"),
        (
            "h200",
            FileKind.TABLE,
            TableError,
            "h200 names landscapes that ship with gemmtune: .*; a table is wanted here",
        ),
        ("a.py", FileKind.TABLE, TableError, "a.py is a Python file: gemmtune tune --kernel FILE.py:CLASS takes"),
        ("a.py", FileKind.RECORDING, UsageError, "a model, MODULE:CALL, or a recorded program is wanted here"),
        ("a\0b", FileKind.TABLE, TableError, "cannot read table a\0b: its name is malformed"),
        ("n" * 300, FileKind.TABLE, TableError, "cannot read table n*: File name too long"),
        (
            "postgresql://me:secret@host/x",
            FileKind.TABLE,
            TableError,
            r"^postgresql://me:\*\*\*@host/x is the URL of a",
        ),
        (
            "postgresql:/me:secret@host/x",
            FileKind.TABLE,
            TableError,
            r"gemmtune export postgresql://me:\*\*\*@host/x writes",
        ),
    ],
)
def test_a_path_that_cannot_serve_says_why(folder, given, wanted, error, said):
    filled(folder, "out/table.json", "a.py")
    with pytest.raises(error, match=said) as refused:
        find(given, wanted)
    assert "secret" not in str(refused.value)
    assert type(refused.value) is error


def test_a_file_of_no_sure_kind_is_left_to_its_reader(folder):
    filled(folder, "a.txt", "b.db")
    (folder / "c.json").write_text(json.dumps({"x": 1}))
    assert find("b.db", FileKind.TABLE) == "b.db"
    assert find("a.txt", FileKind.CAMPAIGN) == "a.txt"
    with pytest.raises(UsageError, match="txt is a file of something else: no command takes it"):
        find("a.txt", FileKind.RECORDING)
    for kind in (FileKind.TABLE, FileKind.INDUCTOR, FileKind.LANDSCAPES):
        assert find("c.json", kind) == "c.json"
    with pytest.raises(UsageError, match="json is a JSON file of something else"):
        find("c.json", FileKind.CAMPAIGN)
    assert find("h200", FileKind.LANDSCAPES) == "h200"
    assert find("postgresql://me:secret@host/x", FileKind.DATABASE) == "postgresql://me:secret@host/x"


def test_a_database_may_be_made_where_nothing_is(folder):
    filled(folder, "a.py")
    assert find_database("new.db", made=True) == "new.db"
    (folder / "dangling").symlink_to("nowhere")
    for given, made in (("new.db", False), ("a.py", True), ("dangling", True)):
        with pytest.raises(StoreError):
            find_database(given, made=made)
    assert find_database("postgresql://host/x", made=True) == "postgresql://host/x"
    with pytest.raises(UsageError, match="the path of the database is empty"):
        find_database("", made=True)
    refuse_empty("x", "table")
