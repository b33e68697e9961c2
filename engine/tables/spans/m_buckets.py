"""Buckets of m: rows that may serve every size that rounds up to their m."""

from collections.abc import Mapping

from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, Row

ROUNDING_BOUND = 0.02
"""Largest measured loss of a row at other sizes, as a fraction: within the spread of one config across GPUs of one
model, see `experiments/measurement`."""


def rounded_up(m: int) -> int:
    """Return the bucket of an m: the least power of two from m on."""
    return 1 << (m - 1).bit_length()


def rounded_loss(row: Row, by_m: Mapping[int, Row]) -> float | None:
    """Return the largest loss of a row's first choice at the sizes that round up to its m.

    The loss is known only if m is a power of two and the table has a row at m/2. At every row from m/2 to m, the choice
    must have been measured beside the best choice, with one toolchain and protocol. The loss is the upper end of the
    choice's interval over the lower end of the best one's, minus 1. `by_m` has the rows that differ from `row` in m
    alone, with the row itself.

    Returns:
        The loss, a fraction from 0 to ROUNDING_BOUND; None if the row serves its own m alone.
    """
    m = row.problem.size
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
    """Return the loss of `choice` against the row's best; None if the two were not measured side by side."""
    best = row.choices[0]
    same = next((c for c in row.choices if _identity(c) == _identity(choice)), None)
    if same is None or {same.evidence, best.evidence, choice.evidence} != {Evidence.MEASURED}:
        return None
    if not same.protocol == best.protocol == choice.protocol:
        return None
    return 0.0 if same is best else max(0.0, same.high_ns / best.low_ns - 1)


def _identity(choice: Choice) -> tuple[str, str, str]:
    return choice.space, choice.config.json, choice.toolchain
