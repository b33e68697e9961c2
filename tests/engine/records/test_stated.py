"""Layouts of operands as Inductor states their sizes and strides."""

from __future__ import annotations

import pytest

from gemmtune.engine.records.gemm.stated import bias_of, layout_of


@pytest.mark.parametrize(
    ("size", "stride", "layout", "lead"),
    [
        ([4, 256], [256, 1], "n", 256),
        ([256, 4], [1, 256], "t", 256),
        ([4, 256], [512, 1], "n", 512),
        ([256, 4], [1, 512], "t", 512),
        ([4, 256], [255, 1], "", None),  # rows overlap
        ([4, 256], [0, 1], "", None),
        ([4, 256], [512, 2], "", None),
        ([1, 256], [0, 1], "n", None),  # one token: Inductor's step to a next row, which there is not
        ([1, 256], [512, 1], "n", None),
        ([1, 256], [0, 2], "t", 2),
        ([256, 1], [1, 256], "t", 256),
        ([256, 1], [1, 0], "t", 256),
        ([256, 1], [80, 0], "n", 80),
        ([256, 1], [0, 1], "", None),
        ([1, 1], [0, 0], "n", None),
        ([256, 1], [80, 1], "n", 80),
        ([2, 1, 256], [256, 0, 1], "n", None),
        ([2, 4, 256], [256, 512, 1], "n", 512),  # heads that lie side by side
    ],
)
def test_an_operand_is_contiguous_along_rows_or_columns(size, stride, layout, lead):
    assert layout_of(size, stride) == (layout, lead)


BIASES = [
    ([32], [1], "vector"),
    ([1, 32], [32, 1], "vector"),
    ([8, 32], [32, 1], "matrix"),
    ([8, 32], [64, 1], ""),
    ([1, 8, 32], [256, 32, 1], "matrix"),
    ([4, 8, 32], [0, 32, 1], "matrix"),
    ([4, 8, 32], [256, 32, 1], "matrices"),
    ([4, 8, 32], [512, 32, 1], ""),
    ([4, 8, 32], [0, 0, 1], "vector"),
    ([4, 1, 32], [32, 32, 1], "vectors"),
    ([4, 8, 32], [32, 0, 1], "vectors"),
    ([4, 8, 1], [8, 1, 1], ""),
    ([], [], ""),
]


@pytest.mark.parametrize(("size", "stride", "bias"), BIASES)
def test_a_bias_of_a_batch_is_named_by_what_it_is_broadcast_over(size, stride, bias):
    assert bias_of(size, stride, (8, 32, 4)) == bias


def test_the_stride_of_a_lone_row_of_a_bias_says_nothing():
    assert [bias_of([1, 32], [step, 1], (1, 32, 1)) for step in (0, 32, 80)] == ["vector", "matrix", "matrix"]
