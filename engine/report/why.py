"""Say why a row ships the kernel it ships."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from gemmtune.engine.records.table import Choice, Row

__all__ = ["Why", "fastest_searched", "legend", "why"]


class Why(StrEnum):
    """Reason for the first choice of a row."""

    WINS = "wins"
    """A searched kernel leads the vendor library beyond the noise and the margin."""
    MARGIN = "under margin"
    """A searched kernel leads the vendor library, by less than the margin."""
    NOISE = "within noise"
    """A searched kernel leads by more than the margin, but the intervals overlap."""
    SLOWER = "library leads"
    """No searched kernel is faster than the vendor library."""
    ALONE = "no baseline"
    """The vendor library was not measured."""
    FAILED = "nothing else works"
    """No searched kernel works."""

    @property
    def kind(self) -> str:
        """Class of the reason for a page and the terminal: win, tie or loss."""
        return {Why.WINS: "win", Why.ALONE: "win", Why.MARGIN: "tie", Why.NOISE: "tie"}.get(self, "loss")

    @property
    def meaning(self) -> str:
        """Sentence that explains the reason."""
        return _MEANINGS[self]


_MEANINGS = {
    Why.WINS: "the kernel leads the library beyond the noise and by the margin or more, and ships",
    Why.MARGIN: "the kernel leads the library by less than the margin; the library ships",
    Why.NOISE: "the kernel leads, but the intervals overlap; the library ships",
    Why.SLOWER: "no kernel found is faster than the library, which ships",
    Why.ALONE: "the library was not measured; the fastest kernel ships",
    Why.FAILED: "no kernel found works; the library ships",
}


def fastest_searched(row: Row) -> Choice | None:
    """Return the row's fastest choice that is not the vendor library's; None if there is none."""
    return min((c for c in row.choices if c.space != row.problem.baseline_space), key=lambda c: c.time_ns, default=None)


def why(row: Row, margin: float) -> Why:
    """Return the reason for the row's first choice.

    Args:
        row: row of a table.
        margin: lead that the table's rows needed to ship, as a fraction.
    """
    best = fastest_searched(row)
    if best is None:
        return Why.FAILED
    if row.baseline is None:
        return Why.ALONE
    if row.choices[0].space != row.problem.baseline_space:
        return Why.WINS
    if best.time_ns >= row.baseline.time_ns:
        return Why.SLOWER
    return Why.MARGIN if row.baseline.time_ns < best.time_ns * (1 + margin) else Why.NOISE


def legend(reasons: Iterable[Why]) -> str:
    """Return a line per reason that occurs, with its meaning."""
    found = set(reasons)
    return "\n".join(f"{reason}: {reason.meaning}" for reason in Why if reason in found)
