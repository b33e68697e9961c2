"""Times of one GPU as another one of its kind would show them."""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.records.measurement import Estimate, Level

__all__ = ["as_on", "scaled"]


def as_on(level: Level | None, estimate: Estimate) -> Estimate:
    """The estimate as on a GPU of that level, which becomes its own.

    As it is where one of the two has no level, or the levels are of different reference kernels.
    """
    if level is None or estimate.level is None or estimate.level.reference != level.reference:
        return estimate
    return replace(scaled(estimate, level.time_ns / estimate.level.time_ns), level=level)


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
