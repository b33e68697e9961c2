"""Arguments of a kernel's function, made from named tensors."""

from __future__ import annotations

import pytest

from gemmtune.engine.seams.kernel_call import binder


class Tensor:
    mT = "exchanged"  # noqa: N815 (torch's name)

    def view(self, size):
        return ("viewed", size)


def test_tensors_are_found_by_name_at_every_depth():
    a, row, out = object(), Tensor(), Tensor()
    call = ["a", "out.mT", None, ["row.flat", [None, "row"], 4], [1, None]]
    bind = binder(call)
    assert bind({"a": a, "row": row, "out": out}) == (
        a,
        "exchanged",
        None,
        (("viewed", -1), (None, row), 4),
        (1, None),
    )
    assert bind({"a": 1, "row": row, "out": out})[0] == 1  # nothing is kept of the call before


@pytest.mark.parametrize("wrong", [1.5, True, {"a": 1}, "a.T", ["a", ["b.flatten"]], [[2.0]]])
def test_what_is_no_argument_is_refused(wrong):
    with pytest.raises(TypeError):
        binder([wrong])
