"""The shipped landscapes are found, and read."""

from __future__ import annotations

import gzip
from importlib import resources

import pytest

from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

ROWS = "x,task.space,time_us,status\n1,{space},2,ok\n"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "files", lambda _package: tmp_path)
    return tmp_path


def test_every_shipped_file_is_a_landscape_of_named_problems():
    for path in embedded():
        for landscape in read_landscapes(path):
            assert landscape.problem is not None
            assert {"space", "device"} <= set(landscape.context)


def test_without_shipped_files_the_list_is_empty(recorded):
    assert embedded() == ()
    assert embedded("triton_mm") == ()


def test_files_are_sorted_and_chosen_by_the_spaces_they_hold(recorded):
    for name, space in (("b", "aten"), ("a", "triton_mm"), ("c", "triton_mm")):
        (recorded / f"{name}.csv.gz").write_bytes(gzip.compress(ROWS.format(space=space).encode()))
    (recorded / "README.md").write_text("how they were made")
    assert [path.name for path in embedded()] == ["a.csv.gz", "b.csv.gz", "c.csv.gz"]
    assert [path.name for path in embedded("triton_mm")] == ["a.csv.gz", "c.csv.gz"]
    assert embedded("cute_gemm") == ()


def test_landscapes_of_some_problems_are_those_of_the_whole_file():
    whole = [each for path in embedded() for each in read_landscapes(path)]
    asked = frozenset({whole[0].problem, whole[-1].problem})
    found = [each for path in embedded() for each in read_landscapes(path, asked)]
    assert list(map(told, found)) == [told(each) for each in whole if each.problem in asked]


def told(landscape):
    return landscape.name, landscape.params, landscape.context, list(landscape.points.items())
