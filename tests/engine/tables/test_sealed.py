"""Sealed files are read where a program is: on a disk, or in the archive that Python runs."""

from __future__ import annotations

import zipfile

import pytest

from gemmtune.engine.tables.sealed import read_sealed


def test_a_file_in_the_archive_that_python_runs_is_read(tmp_path):
    with zipfile.ZipFile(tmp_path / "app.pyz", "w") as archive:
        archive.writestr("tables/inductor_table.json", "{}")
    assert read_sealed(tmp_path / "app.pyz" / "tables/inductor_table.json", bytes) == b"{}"
    with pytest.raises(OSError, match=r"app\.pyz/tables/other\.json"):
        read_sealed(tmp_path / "app.pyz" / "tables/other.json", bytes)


def test_a_path_below_a_file_that_is_no_archive_is_named(tmp_path):
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(NotADirectoryError, match=r"table\.json/inductor_table\.json"):
        read_sealed(tmp_path / "table.json" / "inductor_table.json", bytes)
