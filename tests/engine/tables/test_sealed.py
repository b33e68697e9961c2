"""Sealed files are read where a program is: on a disk, or in the archive that Python runs."""

from __future__ import annotations

import zipfile

import pytest

from gemmtune.engine.tables import sealed
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


@pytest.mark.parametrize(
    ("check", "value", "wrong"),
    [
        *((lambda value: sealed.require_integer("m", value, 1, 9), value, None) for value in (1, 5, 9)),
        (lambda value: sealed.require_integer("m", value, 1, 9), 0, "m=0 is not from 1 to 9"),
        (lambda value: sealed.require_integer("m", value, 1, 9), 10, "m=10 is not from 1 to 9"),
        (lambda value: sealed.require_integer("m", value, 1, 9), True, "m=True is not an integer"),
        (lambda value: sealed.require_integer("m", value, 1, 9), 2.0, r"m=2\.0 is not an integer"),
        *((lambda value: sealed.require_number("x", value, -1.5, 2.5), value, None) for value in (-1.5, 0, 2.5)),
        (lambda value: sealed.require_number("x", value, -1.5, 2.5), -1.6, r"x=-1.6 is not from -1\.5 to 2\.5"),
        (lambda value: sealed.require_number("x", value, -1.5, 2.5), 2.6, r"x=2.6 is not from -1\.5 to 2\.5"),
        (lambda value: sealed.require_number("x", value, 0, 2), False, "x=False is not a number"),
        (lambda value: sealed.require_number("x", value, 0, 2), "1", "x='1' is not a number"),
        *((lambda value: sealed.require_text("t", value), value, None) for value in ("a", "x" * 300)),
        (lambda value: sealed.require_text("t", value), "", "t='' is not 1 to 300 printable characters"),
        (lambda value: sealed.require_text("t", value), "x" * 301, "is not 1 to 300 printable characters"),
        (lambda value: sealed.require_text("t", value), "a\nb", "is not 1 to 300 printable characters"),
        (lambda value: sealed.require_text("t", value), 3, "t=3 is not text"),
        (lambda value: sealed.require_texts("t", value), ["a", "b"], None),
        (lambda value: sealed.require_texts("t", value), "ab", "t='ab' is not a list"),
        (lambda value: sealed.require_texts("t", value), ["a", ""], "printable characters"),
        (lambda value: sealed.require_object("o", value, {"a"}), {"a": 1}, None),
        (lambda value: sealed.require_object("o", value), {"b": 1}, None),
        (lambda value: sealed.require_object("o", value, {"a"}), {}, "o has the missing field 'a'"),
        (lambda value: sealed.require_object("o", value, {"a"}), {"a": 1, "b": 2}, "o has the unknown field 'b'"),
        (lambda value: sealed.require_object("o", value, {"a"}), [], r"o=\[\] is not an object"),
    ],
)
def test_a_field_is_taken_within_its_bounds_and_named_beyond_them(check, value, wrong):
    if wrong is None:
        assert check(value) == value
        return
    with pytest.raises((TypeError, ValueError), match=wrong):
        check(value)


def test_a_config_has_the_values_of_its_params_by_type():
    params = sealed.require_params("params", {"A": [1, True, 1.5], "B": ["x"]}, {"A", "B"})
    for a in (1, True, 1.5):
        assert sealed.require_config("config", {"A": a, "B": "x"}, params) == {"A": a, "B": "x"}
    for config, wrong in (
        ({"A": 1.0, "B": "x"}, r"config.A=1.0 is not one of 1, True, 1.5"),
        ({"A": 1, "B": 1}, "config.B=1 is not one of 'x'"),
        ({"A": 1}, "missing field 'B'"),
    ):
        with pytest.raises(ValueError, match=wrong):
            sealed.require_config("config", config, params)
    for values in (None, [None], [[1]]):
        with pytest.raises(TypeError, match="is not a list of numbers and texts"):
            sealed.require_params("params", {"A": values})


@pytest.mark.parametrize(
    ("facts", "wrong"),
    [
        ({"text": "x" * 999, "number": 1.5, "none": None, "inner": {"16": 2}}, None),
        ({"text": "a\x1bb"}, "facts.'text'='a.*' may not be printed"),
        ({"number": float("inf")}, "facts.'number'=inf is not from"),
        ({"number": True}, "facts.'number'=True is not a number"),
        ({"inner": {"16": "x"}}, "facts.'inner'.16='x' is not a number"),
        ([], "is not an object"),
    ],
)
def test_facts_are_texts_numbers_and_objects_of_numbers(facts, wrong):
    if wrong is None:
        assert sealed.require_facts(facts) == facts
        return
    with pytest.raises((TypeError, ValueError), match=wrong):
        sealed.require_facts(facts)
