"""Options are read from the fields that state them, and numbers are held to their bounds."""

from __future__ import annotations

import inspect
import math
from dataclasses import dataclass

import pytest

from gemmtune.engine.io.options import Option, Value, check_options, options_of, show_options, stated
from gemmtune.engine.records.errors import UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    sizes: int = stated(4, Option("Size of it. At least one.", Value.INTEGER, least=1, name="size"))
    share: float | None = stated(None, Option("Share.", Value.FRACTION, above=0))
    seconds: float | None = stated(None, Option("Time to wait.", Value.SECONDS, above=0))
    plain: str = ""

    def __post_init__(self):
        check_options(self, "my.")


def test_an_option_knows_its_field_and_default():
    size, share, _ = options_of(Settings).values()
    assert (size.name, size.field, size.default, size.phrase) == ("size", "sizes", 4, "size of it")
    assert (share.name, share.field, share.default) == ("share", "share", None)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"sizes": 0}, r"^my\.size=0 is not an integer from 1 on$"),
        ({"sizes": None}, r"^my\.size=None is not an integer from 1 on$"),
        ({"sizes": True}, r"^my\.size=True is not an integer"),
        ({"share": 0}, r"^my\.share=0 is not a number above 0$"),
        ({"share": 2}, r"^my\.share=2 is 200%, not a fraction below 1; for 2 % write 0\.02$"),
        ({"share": math.nan}, r"^my\.share=nan is not a number above 0$"),
        ({"share": "1"}, r"^my\.share='1' is not a number above 0$"),
    ],
)
def test_a_number_out_of_bounds_is_refused_by_its_name(values, said):
    with pytest.raises(UsageError, match=said):
        Settings(**values)


def test_a_number_gets_the_type_that_is_stated():
    assert Settings().seconds is None
    assert isinstance(Settings(seconds=3).seconds, float)
    assert options_of(Settings)["seconds"].checked(2) == 2.0


def test_options_are_shown_after_a_parameter():
    def work(first, second=1, *, last=2, **options):
        """Work."""

    show_options(work, "second", dict.fromkeys(options_of(Settings).values(), int))
    shown = "size: int = None, share: int = None, seconds: int = None"
    assert str(inspect.signature(work)) == f"(first, second=1, *, {shown}, last=2)"
