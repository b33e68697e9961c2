"""Files and requirements of a folder, a wheel and an installed package."""

from __future__ import annotations

import zipfile

import pytest

from gemmtune.engine.consumers.serving import sources
from gemmtune.engine.consumers.serving.sources import json_files, pinned_triton
from gemmtune.engine.records.errors import UsageError


def wheel(folder, metadata=None, **files):
    path = folder / "engine-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"engine/{name}.json", text)
        archive.writestr("engine/code.py", "")
        if metadata is not None:
            archive.writestr("engine-1.0.dist-info/METADATA", metadata)
    return str(path)


@pytest.mark.parametrize(
    ("required", "release"),
    [
        (["torch==2.11.0"], "3.6"),
        (["torch == 2.13.1+cu130"], "3.7"),
        (["torch==2.15.0", "triton==3.4.1"], "3.9"),  # the first that says it
        (["triton==3.4.1", "torch==2.15.0"], "3.4"),
        (["torch==1.0.0", "triton==3.4.1"], "3.4"),
        (["torch>=2.11", "triton~=3.4"], ""),
        (["torchvision==2.11.0"], ""),
        (["not a requirement ==", "triton==3.8.0"], "3.8"),
        ([], ""),
    ],
)
def test_the_release_of_triton_is_that_of_a_pin(tmp_path, required, release):
    metadata = "Name: engine\n" + "".join(f"Requires-Dist: {each}\n" for each in required) + "\nRequires-Dist\n"
    assert pinned_triton(wheel(tmp_path, metadata)) == release


def test_a_wheel_without_metadata_and_a_folder_require_nothing(tmp_path):
    assert pinned_triton(wheel(tmp_path)) == ""
    assert pinned_triton(str(tmp_path)) == ""


def test_json_files_come_sorted_with_their_content(tmp_path):
    assert [(str(name), data) for name, data in json_files(wheel(tmp_path, b=b"2", a=b"1"))] == [
        ("engine/a.json", b"1"),
        ("engine/b.json", b"2"),
    ]
    (tmp_path / "x/y").mkdir(parents=True)
    (tmp_path / "x/folder.json").mkdir()
    (tmp_path / "x/y/b.json").write_bytes(b"2")
    (tmp_path / "x/a.json").write_bytes(b"1")
    assert [(str(name), data) for name, data in json_files(str(tmp_path / "x"))] == [
        ("a.json", b"1"),
        ("y/b.json", b"2"),
    ]


@pytest.mark.parametrize("source", ["no_such_package_here", "a/b"])
def test_a_source_that_is_nothing_is_refused(source):
    with pytest.raises(UsageError, match=r"is no folder, no wheel, no tuned file .*and no installed package"):
        list(json_files(source))


@pytest.mark.parametrize(("content", "reason"), [(b"no archive", "it is no whole wheel"), (None, "No such file")])
def test_a_wheel_that_cannot_be_read_is_refused_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "engine.whl"
    if content is not None:
        path.write_bytes(content)
    for read in (lambda: list(json_files(str(path))), lambda: pinned_triton(str(path))):
        with pytest.raises(UsageError, match=f"cannot read .*engine.whl: .*{reason}"):
            read()


@pytest.mark.parametrize("more", [0, 1])
def test_a_tuned_file_is_read_up_to_its_largest_size(tmp_path, monkeypatch, more):
    monkeypatch.setattr(sources, "_MOST_BYTES", 4)
    text = b"1" * (4 + more)
    (tmp_path / "a.json").write_bytes(text)
    for source in (str(tmp_path), wheel(tmp_path / "..", a=text)):
        if more:
            with pytest.raises(UsageError):
                list(json_files(source))
        else:
            assert [data for _, data in json_files(source)] == [text]
