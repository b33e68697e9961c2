"""Times of one GPU as another one of its kind would show them."""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.records.measurement import Estimate, ReferenceLevel

__all__ = ["as_on", "scaled"]


def as_on(level: ReferenceLevel | None, estimate: Estimate) -> Estimate:
    """The estimate as on a GPU of that level, which becomes its own.

    As it is where one of the two has no level, or the levels are of different reference kernels; and on its own GPU,
    where levels of two processes differ by noise alone.
    """
    own = estimate.level
    if level is None or own is None or own.reference != level.reference or own.board == level.board:
        return estimate
    return replace(scaled(estimate, level.time_ns / own.time_ns), level=level)


def scaled(estimate: Estimate, factor: float) -> Estimate:
    """The estimate with its times multiplied."""
    if factor == 1.0:
        return estimate
    return replace(
        estimate,
        time_ns=estimate.time_ns * factor,
        low_ns=estimate.low_ns * factor,
        high_ns=estimate.high_ns * factor,
    )
