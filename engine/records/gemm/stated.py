"""Facts of a GEMM that its name states only where they are unusual: scalars and strides. Needs the standard library."""

from __future__ import annotations

from collections.abc import Mapping
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
