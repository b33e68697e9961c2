"""The product: for every problem the choice production should make, with its evidence."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.problem import Problem

__all__ = ["Choice", "RangeRow", "Row", "Table"]


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel for a problem, with what is known of its time."""

    space: str
    """The space the config belongs to."""
    config: Config
    """The config."""
    time_ns: float
    """The objective's estimate of one launch."""
    low_ns: float
    """Lower end of the time's 95 % interval."""
    high_ns: float
    """Upper end of the time's 95 % interval."""
    samples: int
    """Number of timed launches behind the time."""
    evidence: Evidence
    """How the time came about."""
    toolchain: str
    """The versions it was built and timed with."""
    protocol: str
    """The timing protocol."""


@dataclass(frozen=True, slots=True)
class Row:
    """The ranked choices for one problem."""

    problem: Problem
    """The GEMM."""
    choices: tuple[Choice, ...]
    """What to run, best first. The first is the baseline unless another beats it beyond the noise and a margin; a
    config that a portfolio picked comes before the others of its space."""
    baseline: Choice | None
    """The vendor library's choice, always measured; None only where a landscape lacks it."""
    margin: float
    """Baseline time over best time, minus 1, of the fastest choice; 0 without a baseline."""
    tie_band: tuple[Config, ...]
    """Configs whose interval overlaps that of the fastest: as good, as far as was measured."""
    regret_bound: float | None = None
    """How much slower than the best finalist the fastest may be, as a fraction; None where no final was held."""
    loss: float = 0.0
    """Score of the first choice over that of the fastest, minus 1: given up to run the baseline, or a config that other
    problems share. 0 where the first is the fastest."""

    @property
    def fastest(self) -> Choice | None:
        """The choice that leads the tie band; None where the row's choices do not go so far."""
        return next((choice for choice in self.choices if self.tie_band[:1] == (choice.config,)), None)


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One choice for a range of m. One of a dynamic m has two sizes from 2 on, or more: see `tables.ranges`."""

    problem: Problem
    """The GEMM, with the greatest m that was tuned or probed in the range."""
    first: int
    """The least m that it serves."""
    last: int
    """The greatest."""
    choice: Choice
    """What to run, as it was measured at the problem's m."""
    tuned: tuple[tuple[int, float], ...]
    """The m of the range that were tuned, and what the choice loses at each, as a fraction of the fastest's score."""
    held_out: tuple[tuple[int, float], ...] = ()
    """The same for m that were tuned, too, and had no say in where ranges end or what serves them."""
    probed: tuple[tuple[int, float], ...] = ()
    """The same for m between those that were tuned: measured with the best of both neighbours and the vendor library,
    and not searched. A range has one m or more that was tuned or probed."""

    @property
    def worst_loss(self) -> float:
        """The greatest loss at an m that was tuned or probed."""
        return max(loss for _, loss in (*self.tuned, *self.probed))


@dataclass(frozen=True, slots=True)
class Table:
    """Best configs of one device."""

    device: Device
    """The GPU the rows hold for."""
    rows: tuple[Row, ...]
    """One a problem, sorted by the problem's name."""
    objective: str
    """What was minimised."""
    ranges: tuple[RangeRow, ...] = ()
    """Choices for ranges of m, sorted by problem and m; those of one GEMM do not overlap."""
