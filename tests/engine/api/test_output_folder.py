"""Files of a result: whose they are, and where a backend's landscapes come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmtune.engine.api import landscapes as recorded
from gemmtune.engine.api.output_folder import left_behind, make_folder, write_all
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.tables.licence import SPDX


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a"], "1 file in {} is not of this table: a"),
        (["b", "a"], "2 files in {} are not of this table: a, b"),
        (["a", "b", "x/c"], "3 files in {} are not of this table: a, b, x/c"),
        (["a", "b", "c", "d"], "4 files in {} are not of this table: a, b, c, ..."),
    ],
)
def test_files_of_an_earlier_table_are_named_up_to_three(tmp_path, names, text):
    own = [*write_all({"own.json": "text", "y/bytes": b"\x00"}, tmp_path)]
    write_all(dict.fromkeys(names, ""), tmp_path)
    (tmp_path / "old.pyc").touch()
    assert left_behind(tmp_path, own) == text.format(tmp_path)
    assert [path.read_bytes() for path in own] == [b"text", b"\x00"]


def test_a_package_takes_the_place_of_an_earlier_one_and_of_no_file_of_others(tmp_path):
    bodies = {"own/__init__.py": SPDX, "own/part.py": SPDX, "own/theirs.py": "", "own/data.json": SPDX, "part.py": SPDX}
    write_all(bodies, tmp_path)
    write_all({"own/__init__.py": SPDX}, tmp_path)
    assert {name: (tmp_path / name).exists() for name in bodies} == {name: name != "own/part.py" for name in bodies}


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match=r"cannot write to .*/file/below: .*/file is a file; name another folder"):
        make_folder(tmp_path / "file" / "below")
    make_folder(tmp_path / "a" / "b")
    make_folder(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("backend", ["h200", "auto"])
def test_a_device_names_no_landscapes(backend):
    assert recorded.sources_of(backend) == ((), None if backend == "auto" else backend)


def test_no_folder_is_made_with_the_name_of_a_file(tmp_path):
    with pytest.raises(UsageError, match=rf"^{tmp_path}/t.json is the name of a file, .*: {tmp_path}/t$"):
        make_folder(tmp_path / "t.json")
    (tmp_path / "old.json").mkdir()
    make_folder(tmp_path / "old.json")
    make_folder(tmp_path / "v1.2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["old.json", "v1.2"]


@pytest.mark.parametrize(
    ("source", "is_file"),
    [("a.csv", True), ("a.csv.gz", True), ("a.json", True), ("./h200", True), ("h200", False), (Path("h200"), True)],
)
def test_a_file_is_known_by_its_suffix_or_a_slash(source, is_file, monkeypatch):
    monkeypatch.setattr(recorded, "read_sources", lambda named: "its landscapes")
    assert recorded.sources_of(source) == (("its landscapes", None) if is_file else ((), source))


def test_landscapes_of_a_device_are_those_that_were_recorded_on_it():
    [one, *_] = found = recorded.landscapes("h200", space="triton_mm")
    assert {each.context["space"] for each in found} == {"triton_mm"}
    assert recorded.landscapes(one) == (one,)
    assert recorded.read_sources(one) == (one,)
    assert recorded.read_sources([one, one]) == (one, one)
    assert recorded.sources_of([one]) == ((one,), None)
    with pytest.raises(LandscapeError, match="nothing is recorded in space toy; recorded: triton_mm"):
        recorded.landscapes(one, space="toy")
    with pytest.raises(LandscapeError, match="no landscape is named"):
        recorded.read_sources([])
    with pytest.raises(LandscapeError, match=r"nothing is recorded of L4; recorded: .*H200"):
        recorded.landscapes("L4")
