"""A file is replaced whole, and nothing planted beside it is followed."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import replace

import pytest

import gemmtune as gt
from gemmtune.engine.records.errors import TableError, UsageError
from gemmtune.engine.store.files import write_whole


def test_a_planted_link_is_not_written_through(tmp_path, monkeypatch):
    monkeypatch.setattr(secrets, "token_hex", lambda count: "known")
    victim, target = tmp_path / "victim", tmp_path / "table.json"
    victim.write_text("mine")
    (tmp_path / ".table.json.known.part").symlink_to(victim)
    with pytest.raises(UsageError, match="cannot write"):
        write_whole(target, b"new")
    assert victim.read_text() == "mine"
    assert not target.exists()


def test_the_names_of_two_writes_differ(tmp_path, monkeypatch):
    names, opened = [], type(tmp_path).open

    def spy(path, *arguments):
        names.append(path.name)
        return opened(path, *arguments)

    monkeypatch.setattr(type(tmp_path), "open", spy)
    for _ in range(2):
        write_whole(tmp_path / "table.json", b"new")
    assert len(set(names)) == 2
    assert str(os.getpid()) not in "".join(names)


def test_all_content_is_on_disk_before_it_takes_the_old_files_place(tmp_path, monkeypatch):
    target, synced = tmp_path / "table.json", []
    target.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", lambda file: synced.append((os.fstat(file).st_size, target.read_bytes())))
    write_whole(target, b"new and longer")
    assert synced == [(14, b"old")]
    assert target.read_bytes() == b"new and longer"


def test_a_new_file_has_the_permissions_of_the_umask(tmp_path):
    before = os.umask(0o027)
    try:
        write_whole(tmp_path / "table.json", b"new")
    finally:
        os.umask(before)
    assert (tmp_path / "table.json").stat().st_mode & 0o777 == 0o640


def test_only_own_and_stale_leftovers_of_this_file_are_removed(tmp_path, monkeypatch):
    day_ago = time.time() - 86_400
    names = {
        "stale": ".a[1].json.0123456789abcdef.part",
        "young": ".a[1].json.fedcba9876543210.part",
        "other": ".b.json.0123456789abcdef.part",
        "link": ".a[1].json.0000000000000000.part",
    }
    for name in ("stale", "young", "other"):
        (tmp_path / names[name]).write_text(name)
        if name != "young":
            os.utime(tmp_path / names[name], (day_ago, day_ago))
    (tmp_path / names["link"]).symlink_to(names["other"])
    os.utime(tmp_path / names["link"], (day_ago, day_ago), follow_symlinks=False)

    write_whole(tmp_path / "a[1].json", b"new")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        {"a[1].json", names["young"], names["other"], names["link"]}
    )
    os.utime(tmp_path / names["young"], (day_ago, day_ago))
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    write_whole(tmp_path / "a[1].json", b"newer")
    assert (tmp_path / names["young"]).exists()


def test_a_table_that_show_would_refuse_does_not_replace_the_one_before(tmp_path):
    table = gt.tune("16x4096x4096:bf16:nt", backend=gt.landscapes("h200"), budget=2).table
    path = tmp_path / "table.json"
    table.save(path)
    before = path.read_bytes()
    choice = table.rows[0].choices[0]
    row = replace(table.rows[0], choices=(replace(choice, low_ns=2 * choice.time_ns),))
    with pytest.raises(TableError, match="low_ns"):
        replace(table, rows=(row,)).save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]
