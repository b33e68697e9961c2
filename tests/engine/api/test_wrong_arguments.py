"""Wrong arguments of the front door's functions are refused in one line that names them."""

from __future__ import annotations

import pytest

import gemmtune as gt


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: gt.check(3), "problems=3 is not of type"),
        (lambda: gt.landscapes(3), "source=3 is not of type"),
        (lambda: gt.capture("hf:a/b", calls=3), "calls=3 is not of type"),
    ],
)
def test_a_wrong_argument_is_named(call, said):
    with pytest.raises(gt.UsageError) as refused:
        call()
    assert str(refused.value).startswith(said)
