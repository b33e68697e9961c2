"""Samplers by name, file or module."""

from __future__ import annotations

import sys
from uuid import uuid4

import pytest

from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.seams.sampler_class import sampler_named
from gemmtune.engine.search.samplers.random import RandomSampler


@pytest.fixture
def name(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    found = f"samplers_{uuid4().hex}"
    base = "gemmtune.engine.search.samplers.random import RandomSampler"
    text = f"from {base}\nclass Mine(RandomSampler): ...\nnumber = 3\ndef function(): ...\n"
    for folder in (tmp_path, tmp_path / "below"):
        folder.mkdir(exist_ok=True)
        (folder / f"{found}.py").write_text(text)
    return found


def test_a_name_without_a_colon_is_a_registered_one(tmp_path):
    assert sampler_named("random", tmp_path) == "random"


@pytest.mark.parametrize("where", ["{}.py", "./{}.py", "below/{}.py", "{}"])
def test_a_class_is_taken_from_a_file_or_a_module_of_the_folder(tmp_path, name, where):
    before = len(sys.path)
    found = sampler_named(f"{where.format(name)}:Mine", tmp_path)
    assert issubclass(found, RandomSampler)
    assert (found.__module__, found.__name__) == (name, "Mine")
    assert sys.path[0] == str(tmp_path / "below" if "below" in where else tmp_path)
    sampler_named(f"{where.format(name)}:Mine", tmp_path)
    assert len(sys.path) == before + 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("other.py:Mine", "no file other.py to take sampler Mine from"),
        ("{}.py:number", "{}.py:number is int, which cannot be called"),
        ("{}:function", "{}:function is not a subclass of gemmtune.Sampler"),
        ("builtins:dict", "builtins:dict is not a subclass of gemmtune.Sampler"),
        ("{}.py:Absent", "cannot import {}.py:Absent"),
    ],
)
def test_anything_else_is_refused(tmp_path, name, text, said):
    with pytest.raises(UsageError, match=said.format(name)):
        sampler_named(text.format(name), tmp_path)
