"""Numbers from outside: their bounds, their spelling, and the words of a refusal."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmtune.engine.io.numbers import checked, checked_fraction, parse_number, shown
from gemmtune.engine.records.errors import TableError, UsageError

LARGEST = 2**63 - 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("value", "kind", "bounds", "found"),
    [
        (3, int, {}, 3),
        (3, float, {}, 3.0),
        (0, int, {"least": 0}, 0),
        (1e-9, float, {"above": 0}, 1e-9),
        (4, int, {"most": 4}, 4),
        (LARGEST, int, {}, LARGEST),
        (-LARGEST, int, {}, -LARGEST),
        (1.7976931348623157e308, float, {}, 1.7976931348623157e308),
        (np.float32(0.5), float, {"above": 0}, 0.5),
        (np.int64(3), int, {}, 3),
    ],
)
def test_a_number_within_its_bounds_is_returned_as_its_kind(value, kind, bounds, found):
    result = checked(value, "x", kind, **bounds)
    assert (result, type(result)) == (found, kind)


@pytest.mark.parametrize(
    ("value", "kind", "bounds", "said"),
    [
        (3.0, int, {}, "x=3.0 is not an integer"),
        (True, int, {}, "x=True is not an integer"),
        (True, float, {}, "x=True is not a number"),
        ("3", int, {}, "x='3' is not an integer"),
        (None, float, {}, "x=None is not a number"),
        (math.nan, float, {}, "x=nan is not a number"),
        (math.inf, float, {}, "x=inf is not a number and at most 1.7976931348623157e+308"),
        (-1, int, {"least": 0}, "x=-1 is not an integer from 0 on"),
        (0, float, {"above": 0}, "x=0 is not a number above 0"),
        (5, int, {"most": 4}, "x=5 is not an integer and at most 4"),
        (0, int, {"least": 1, "most": 4}, "x=0 is not an integer from 1 on and at most 4"),
        (LARGEST + 1, int, {"least": 1}, f"x={LARGEST + 1} is not an integer from 1 on and at most {LARGEST}"),
        (-LARGEST - 1, int, {}, f"x={-LARGEST - 1} is not an integer"),
    ],
)
def test_any_other_value_is_refused_with_its_bounds(value, kind, bounds, said):
    with pytest.raises(UsageError) as refused:
        checked(value, "x", kind, **bounds)
    assert str(refused.value) == said
    with pytest.raises(TableError):
        checked(value, "x", kind, **bounds, error=TableError)


def test_a_fraction_is_below_1_and_a_percentage_is_explained():
    assert checked_fraction(0.999, "margin", least=0) == 0.999
    assert checked_fraction(0, "margin", least=0) == 0
    with pytest.raises(UsageError, match=r"^margin=2 is 200%, not a fraction below 1; for 2 % write 0.02$"):
        checked_fraction(2, "margin", least=0)
    with pytest.raises(UsageError, match=r"^margin=1 is 100%, not a fraction below 1; for 1 % write 0.01$"):
        checked_fraction(1, "margin")
    with pytest.raises(UsageError, match="from 0 on"):
        checked_fraction(-0.1, "margin", least=0)
    with pytest.raises(UsageError, match="above 0"):
        checked_fraction(0, "margin", above=0)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("0", 0), ("-12", -12), ("+7", 7), ("9" * 18, 10**18 - 1), ("1.5", 1.5), (".5", 0.5), ("5.", 5.0)),
        *(("1e3", 1000.0), ("-1.5E-2", -0.015), ("1" + "0" * 18, 1e18)),
    ],
)
def test_a_spelled_number_is_an_int_of_18_digits_or_a_float(text, number):
    found = parse_number(text)
    assert (found, type(found)) == (number, type(number))


@pytest.mark.parametrize("text", ["", " 1", "1_000", "0x10", "nan", "inf", "1e400", "1e", ".", "--1", "١", "1,5"])
def test_other_texts_are_no_numbers(text):
    with pytest.raises(ValueError) as refused:  # noqa: PT011 (the message is the text)
        parse_number(text)
    assert str(refused.value) == text


def test_a_value_in_a_message_is_one_line_of_at_most_80_characters():
    assert shown("a\nb") == r"'a\nb'"
    assert shown("x" * 78) == f"'{'x' * 78}'"
    assert shown("x" * 79) == f"'{'x' * 78}…"
    assert shown(10**5000) == "int too large to show"
