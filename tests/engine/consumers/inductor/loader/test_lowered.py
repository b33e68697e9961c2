"""Layouts of operands as Inductor states their sizes and strides."""

from __future__ import annotations

import pytest


@pytest.mark.slow(4)
@pytest.mark.parametrize(
    ("size", "stride", "layout"),
    [
        ([4, 256], [256, 1], "n"),
        ([256, 4], [1, 256], "t"),
        ([4, 256], [512, 1], ""),
        ([1, 256], [0, 1], "n"),  # one token: Inductor's step to a next row, which there is not
        ([1, 256], [512, 1], "n"),
        ([1, 256], [0, 2], ""),
        ([256, 1], [1, 256], "t"),
        ([2, 1, 256], [256, 0, 1], "n"),
    ],
)
def test_an_operand_is_contiguous_along_rows_or_columns(size, stride, layout):
    lowered = pytest.importorskip("gemmtune.engine.consumers.inductor.loader.lowered", reason="torch is not installed")
    assert lowered._layout(size, stride) == layout
