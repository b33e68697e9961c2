"""Arguments of other types than the annotated ones are refused by name, before the function runs."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmtune.engine.io.arguments import check_types, checks_arguments
from gemmtune.engine.records.errors import UsageError


class Base:
    pass


class Derived(Base):
    pass


@pytest.mark.parametrize(
    ("hint", "taken", "refused"),
    [
        (int, [0, np.int64(3)], [True, 1.5, "1", None]),
        (float | None, [1, 0.5, Fraction(1, 2), None], ["1", False]),
        (bool, [True], [1, "yes"]),
        (str | os.PathLike[str], ["a", Path("a")], [b"a", 3, ["a"]]),
        (Iterable[str], [[], ("a",), {"a": 1}, (3 for _ in "a")], [3, ["a", 1], (None,)]),
        (Sequence[Base], [[Derived()], ()], ["ab", [Base], {Base()}]),
        (str | type[Base], ["a", Derived], [int, Base(), 3]),
        (tuple[int, ...], [(), (1, 2)], [[1], (1, "2")]),
        (Mapping[str, float] | bool, [{"a": 1}, True], [[("a", 1)], 0]),
        (Callable[[int], None], [print], ["print"]),
        (object, [None, 3], []),
        (Any, [None, 3], []),
    ],
)
def test_values_are_held_to_their_types(hint, taken, refused):
    for value in taken:
        check_types({"x": value}, {"x": hint})
    for value in refused:
        with pytest.raises(UsageError, match=r"^x=.* is not of type "):
            check_types({"x": value}, {"x": hint})


def test_a_message_names_the_value_and_the_type_without_modules():
    with pytest.raises(UsageError, match=r"^x=5 is not of type str \| type\[Base\] \| None$"):
        check_types({"x": 5, "unknown": 3}, {"x": str | type[Base] | None})


def test_a_function_refuses_arguments_by_position_and_by_name_before_it_runs():
    calls = []

    @checks_arguments
    def called(first: int, *rest: str, last: str = "") -> int:
        """Count."""
        calls.append((first, rest, last))
        return first

    assert (called(1, "a", last="b"), called.__doc__) == (1, "Count.")
    for arguments, named in ((("x",), {}), ((1,), {"last": 3})):
        with pytest.raises(UsageError, match="is not of type"):
            called(*arguments, **named)
    assert calls == [(1, ("a",), "b")]
