"""Facts of a GEMM that its name states only where they are unusual, or strides tell. Needs the standard library."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gemmtune.engine.records.number_text import number_text

STRIDES = ("lda", "ldb", "batch_stride_a", "batch_stride_b")
"""Names of the strides."""
STATED: Mapping[str, float | None] = {**dict.fromkeys(("alpha", "beta"), 1.0), **dict.fromkeys(STRIDES)}
"""Names of the facts with the values that no name states; None is the dense stride."""
USUAL = tuple(STATED.values())
"""Usual values, in the order of the names."""


def stated_texts(values: Mapping[str, float | None]) -> list[str]:
    """Return `NAME=VALUE` per fact that is unusual, in a fixed order; a missing one is usual."""
    found = {name: values.get(name, usual) for name, usual in STATED.items()}
    return [
        f"{name}={number_text(value)}" for name, value in found.items() if value is not None and value != STATED[name]
    ]


def unusual_strides(
    layout: str, rows: int, columns: int, lead: int | None, batch: int, batch_stride: int | None
) -> tuple[int | None, int | None]:
    """Return an operand's leading dimension and batch stride in elements, with None in place of a dense one.

    With layout `n`, elements of a row lie side by side, with `t` those of a column. A batch is dense if each matrix
    begins where the whole rows, or columns, of the one before end, `lead` elements each.
    """
    inner, outer = (columns, rows) if layout == "n" else (rows, columns)
    whole = outer * (inner if lead is None else lead)
    return None if lead == inner else lead, None if batch == 1 or batch_stride == whole else batch_stride


def strides_of(layout: str, sizes: tuple[Any, Any], lead: int | None, batch_stride: int | None) -> tuple[Any, Any, Any]:
    """Return the strides of an operand along batch, rows and columns, in elements; see `unusual_strides`.

    The rows and columns in `sizes` are numbers, or expressions that a library computes with.
    """
    inner, outer = sizes[::-1] if layout == "n" else sizes
    lead = inner if lead is None else lead
    whole = outer * lead if batch_stride is None else batch_stride
    return (whole, lead, 1) if layout == "n" else (whole, 1, lead)


def layout_of(size: Sequence[int], stride: Sequence[int]) -> tuple[str, int | None]:
    """Return `n` for rows of contiguous elements, `t` for such columns, else an empty text, and their distance.

    The stride of a dimension of size 1 says nothing: Inductor writes 0 where the model has one token.
    """
    (rows, columns), (of_row, of_column) = size[-2:], stride[-2:]
    if columns == 1 != of_column:
        of_column = rows if of_row == 1 else 1
    if rows == 1 != of_column:
        of_row = 1
    if (of_row, of_column) == (1, rows) != (columns, 1):
        return "t", rows
    if of_column == 1 and (rows == 1 or of_row >= columns):
        return "n", None if rows == 1 else of_row
    return ("t", of_column) if of_row == 1 and of_column >= rows else ("", None)


def bias_of(
    size: Sequence[Any], stride: Sequence[Any], product: Sequence[Any], equal: Callable[[Any, Any], bool] = operator.eq
) -> str:
    """Return the shape of a bias of a product (m, n, batch) by its name; empty for neither rows nor matrices."""
    m, n, batch = product
    if not size or (n != 1 and not (equal(size[-1], n) and equal(stride[-1], 1))):
        return ""
    lone = len(size) == 1 or equal(stride[-2], 0) or (equal(size[-2], 1) and m != 1)
    of_product = "vector" if lone else "matrix" if equal(stride[-2], n) or equal(size[-2], 1) else ""
    if len(size) < 3 or (of_product == "vector" and batch == 1) or equal(stride[0], 0):
        return of_product
    if batch != 1 and equal(size[0], 1):
        return of_product
    of_batch = {"vector": ("vectors", n), "matrix": ("matrices", m * n)}.get(of_product)
    return of_batch[0] if of_batch and (batch == 1 or equal(stride[0], of_batch[1])) else ""
