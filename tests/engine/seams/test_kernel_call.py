"""Arguments of a kernel's function, made from named tensors."""

from __future__ import annotations

import pytest

from gemmtune.engine.seams.kernel_call import binder

clusters = {2: 66}.__getitem__


class Tensor:
    mT = "exchanged"  # noqa: N815 (torch's name)

    def view(self, size):
        return ("viewed", size)


def test_tensors_are_found_by_name_at_every_depth():
    a, row, out = object(), Tensor(), Tensor()
    call = ["a", "out.mT", None, ["row.flat", [None, "row"], 4], [1, None]]
    bind = binder(call, clusters)
    assert bind({"a": a, "row": row, "out": out}) == (
        a,
        "exchanged",
        None,
        (("viewed", -1), (None, row), 4),
        (1, None),
    )
    assert bind({"a": 1, "row": row, "out": out})[0] == 1  # nothing is kept of the call before


def test_the_number_of_clusters_is_that_of_the_gpu_and_is_asked_once():
    asked = []
    bind = binder(["a", ["clusters.2", None, ["clusters.4"]]], lambda blocks: asked.append(blocks) or 132 // blocks)
    assert bind({"a": 1}) == bind({"a": 1}) == (1, (66, None, (33,)))
    assert asked == [2, 4]


def test_a_cluster_without_a_number_of_blocks_is_refused():
    with pytest.raises(ValueError, match="invalid literal"):
        binder(["clusters.b"], clusters)


@pytest.mark.parametrize("wrong", [1.5, True, {"a": 1}, "a.T", ["a", ["b.flatten"]], [[2.0]]])
def test_what_is_no_argument_is_refused(wrong):
    with pytest.raises(TypeError):
        binder([wrong], clusters)
