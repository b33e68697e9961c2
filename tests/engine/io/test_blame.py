"""Exceptions are the user's where their code was on the way, and not where installed packages alone were."""

from __future__ import annotations

import sys
from importlib import import_module
from uuid import uuid4

import pytest
from sqlalchemy.util import OrderedSet

from gemmtune.engine.io.blame import account, line_of


@pytest.fixture
def caught(tmp_path, monkeypatch):
    """Write modules, by their folders in the test's own, of which each calls the next; return what the last raises."""

    def catch(*folders: str, here: str = "user") -> tuple[BaseException, list[str]]:
        names = [f"{folder.split('/')[-1]}_{uuid4().hex}" for folder in folders]
        for folder, name, below in zip(folders, names, [*names[1:], ""], strict=True):
            (tmp_path / folder).mkdir(parents=True, exist_ok=True)
            text = f"import {below}\n\ndef call():\n    {below}.call()\n" if below else "def call():\n    1 / 0\n"
            (tmp_path / folder / f"{name}.py").write_text(text)
            monkeypatch.syspath_prepend(str(tmp_path / folder))
        (tmp_path / here).mkdir(exist_ok=True)
        monkeypatch.chdir(tmp_path / here)
        with pytest.raises(ZeroDivisionError) as raised:
            import_module(names[0]).call()
        return raised.value.with_traceback(raised.tb.tb_next), names

    return catch


@pytest.fixture
def site(tmp_path):
    """A folder of installed packages whose name does not say so."""
    (tmp_path / "site" / "typer-0.20.dist-info").mkdir(parents=True)
    return "site"


@pytest.mark.parametrize("folders", [("user", "site"), ("site", "user"), ("site", "user", "site", "site/below")])
def test_the_users_frame_is_found_above_below_and_between_installed_packages(caught, site, folders):
    error, names = caught(*folders)
    place = folders.index("user")
    line = 2 if place == len(folders) - 1 else 4
    assert line_of(error) == f"{names[place]}.py, line {line}"


@pytest.mark.parametrize("here", ["user", "."])
def test_installed_packages_alone_are_nobodys(caught, site, tmp_path, here):
    error, names = caught("site", "site/below", here=here)
    assert account(error) == "ZeroDivisionError: division by zero"
    assert account(error, {names[1]}).endswith(f"site/below/{names[1]}.py, line 2)"), "a plug-in is named"
    assert account(error, {names[0]}).endswith(f"site/{names[0]}.py, line 4)")
    assert line_of(error, None) == line_of(error, {names[1]}), "a package that is imported by its name"


@pytest.mark.parametrize("here", ["site", "site/user"])
def test_the_working_directory_is_the_users_beside_and_below_installed_packages(caught, site, here):
    error, names = caught(here, here=here)
    assert line_of(error) == f"{names[0]}.py, line 2"


@pytest.mark.parametrize("metadata", ["gemmtune-1.0.dist-info", "gemmtune.egg-info", "project.egg-info"])
def test_a_checkout_with_its_own_metadata_is_the_users(caught, tmp_path, metadata):
    (tmp_path / "checkout" / metadata).mkdir(parents=True)
    error, names = caught("checkout")
    assert line_of(error) == f"{tmp_path}/checkout/{names[0]}.py, line 2"
    assert sys.path[0] == f"{tmp_path}/checkout"


def test_a_compiled_module_whose_frames_name_the_folder_of_its_sources_is_nobodys():
    with pytest.raises(TypeError) as caught:
        OrderedSet(5)
    assert "test_blame.py, line" in line_of(caught.value)
