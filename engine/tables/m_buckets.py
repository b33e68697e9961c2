"""Where a row may serve other sizes than its own, as far as the table's own numbers show."""

from __future__ import annotations

from collections.abc import Mapping

from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row

__all__ = ["ROUNDING_BOUND", "rounded_loss", "rounded_up"]

ROUNDING_BOUND = 0.02
"""Largest measured loss with which a row may serve other sizes of m: well within the 0.7 to 3.5 % that one config
spreads across GPUs of one model (H200, 2026-11)."""


def rounded_up(m: int) -> int:
    """The least power of two from m on: the bucket of an m."""
    return 1 << (m - 1).bit_length()


def rounded_loss(row: Row, by_m: Mapping[int, Row]) -> float | None:
    """What the row's first choice loses at worst, where it was measured from m/2 to m; None: it serves its m alone.

    A row may serve the sizes that round up to its m only if m is a power of two, the table has a row at m/2, and at
    that size and at every size of the table between, this very choice (config and toolchain) was measured beside the
    row's best, by the same protocol. Its loss at a size is the upper end of its interval over the lower end of the
    best's, minus 1, and 0 where it is the best; the largest must not exceed ROUNDING_BOUND. The best is a row's first
    choice, so that what a portfolio gave up at a size is not counted again.

    What the choice loses at sizes between that were not measured is not known: more rows make the statement stronger.

    Args:
        row: the row, with the choices that compete: of one space where a consumer runs no other.
        by_m: the rows of the table whose problem differs from the row's in m alone, by their m; the row itself too.
            Each has a choice.
    """
    m = row.problem.m
    if m < 2 or m != rounded_up(m) or m // 2 not in by_m:
        return None
    worst = 0.0
    for size, other in by_m.items():
        if m // 2 <= size <= m:
            loss = _loss(row.choices[0], other)
            if loss is None or loss > ROUNDING_BOUND:
                return None
            worst = max(worst, loss)
    return worst


def _loss(choice: Choice, row: Row) -> float | None:
    """What `choice` loses to the row's best; None where the two were not measured side by side."""
    best = row.choices[0]
    same = next((c for c in row.choices if _identity(c) == _identity(choice)), None)
    if same is None or {same.evidence, best.evidence, choice.evidence} != {Evidence.MEASURED}:
        return None
    if not same.protocol == best.protocol == choice.protocol:
        return None
    return 0.0 if same is best else max(0.0, same.high_ns / best.low_ns - 1)


def _identity(choice: Choice) -> tuple[str, str, str]:
    return choice.space, choice.config.json, choice.toolchain
