"""Say why a row ships the kernel it ships, and what to change for one that no exporter serves."""

from collections.abc import Iterable
from enum import StrEnum

from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UnknownPlugin
from gemmtune.engine.records.table import Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry


class Why(StrEnum):
    """Reason for the first choice of a row."""

    WINS = "wins"
    """A searched kernel leads the baseline beyond the noise and the margin."""
    BITS = "equal bits"
    """A searched kernel ships though the baseline is faster: the table is batch-invariant."""
    MARGIN = "under margin"
    """A searched kernel leads the baseline, by less than the margin."""
    NOISE = "within noise"
    """A searched kernel leads by more than the margin, but the intervals overlap."""
    SLOWER = "baseline wins"
    """No searched kernel is faster than the baseline."""
    ALONE = "no baseline"
    """The baseline was not measured, or failed."""
    FAILED = "no other kernel"
    """No searched kernel works, or none was tried."""
    KEPT = "earlier row"
    """The row of an earlier table leads what this campaign found, and stays."""

    @property
    def kind(self) -> str:
        """Class for a page and the terminal: win, loss for a slower kernel, or tie for what gains nothing."""
        return "win" if self in (Why.WINS, Why.ALONE) else "loss" if self is Why.BITS else "tie"

    def meaning(self, baseline: str) -> str:
        """Return the sentence that explains the reason; `baseline` are the words for the kernel that runs untuned."""
        return {
            Why.WINS: f"the kernel leads {baseline} beyond the noise and by the margin or more, and ships",
            Why.BITS: f"{baseline} is faster, and gives other bits at another size; the kernel ships",
            Why.MARGIN: f"the kernel leads {baseline} by less than the margin; {baseline} ships",
            Why.NOISE: f"the kernel leads, but the intervals overlap; {baseline} ships",
            Why.SLOWER: f"no kernel found is faster than {baseline}, which ships",
            Why.ALONE: f"{baseline} was not measured, or failed; the fastest kernel ships",
            Why.FAILED: f"no kernel works, or none was tried; {baseline} ships",
            Why.KEPT: "the row of an earlier table leads what this campaign found, and stays",
        }[self]


def why(row: Row, margin: float) -> Why:
    """Return the reason for the row's first choice."""
    best = row.kernel
    if best is None:
        return Why.FAILED
    if row.baseline is None:
        return Why.ALONE
    if row.choices[0].space != row.problem.baseline_space:
        return Why.BITS if best.time_ns > row.baseline.time_ns else Why.WINS
    if best.time_ns >= row.baseline.time_ns:
        return Why.SLOWER
    return Why.MARGIN if row.baseline.time_ns < best.time_ns * (1 + margin) else Why.NOISE


def legend(reasons: Iterable[Why], baseline: str) -> str:
    """Return a line per reason that occurs, with its meaning; see `Why.meaning`."""
    found = set(reasons)
    return "\n".join(f"{reason}: {reason.meaning(baseline)}" for reason in Why if reason in found)


def kind_meanings(baseline: str) -> dict[str, str]:
    """Return the meaning of each kind of row, for a picture; for `baseline`, see `Why.meaning`."""
    return {"win": "ships the kernel", "tie": f"ships {baseline}", "loss": "ships a slower kernel, for equal bits"}


def advice(device: Device, row: Row) -> str:
    """Return what to change in a program for the fastest kernel, and by how much it is faster; empty for nothing."""
    first, *others = row.choices
    try:
        change = registry.space(first.space).advice(Task(row.problem, device, first.space))
    except UnknownPlugin:  # of a plug-in that is not installed
        return ""
    other = min((each for each in others if each.space != first.space), key=lambda each: each.time_ns, default=None)
    if not change or other is None:
        return ""
    return f"{row.problem.name}: {change}; it is {other.time_ns / first.time_ns:.2f} times as fast as {other.space}"
