"""Tables: the config that production should run for every problem, with its evidence."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Self

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.workload import Workload

SHIP_MARGIN = 0.02
"""Default lead over the baseline that is worth shipping a kernel, as a fraction: a table serves other boards than the
measured one."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One kernel for a problem, with its time and evidence."""

    space: str
    """Name of the space that the config belongs to."""
    config: Config
    """Config of the kernel."""
    time_ns: float = field(metadata={"above": 0})
    """Estimated score of one launch, in ns for a time."""
    low_ns: float = field(metadata={"above": 0})
    """Lower end of its 95 % interval, in ns."""
    high_ns: float = field(metadata={"above": 0})
    """Upper end of its 95 % interval, in ns."""
    samples: int = field(metadata={"least": 0})
    """Number of timed launches behind the time."""
    evidence: Evidence
    """Origin of the time: measured, replayed or estimated."""
    toolchain: str
    """Versions that built and timed the kernel."""
    protocol: str
    """Name of the timing protocol."""

    @property
    def fault(self) -> str:
        """Reason why the values contradict each other, `samples=0 is not an integer from 1 on`; empty if none does."""
        if not self.low_ns <= self.time_ns <= self.high_ns:
            return f"time_ns={self.time_ns:g} is outside low_ns={self.low_ns:g} to high_ns={self.high_ns:g}"
        try:
            Toolchain.parse(self.toolchain)
        except ValueError as error:
            return str(error)
        timed = self.samples >= 1 or self.evidence is Evidence.ESTIMATED
        return "" if timed else f"samples={self.samples} is not an integer from 1 on"


@dataclass(frozen=True, slots=True)
class Row:
    """Ranked choices for one problem."""

    problem: Workload
    """Problem that the choices solve."""
    choices: tuple[Choice, ...]
    """Choices, best first; the baseline is first unless another beats it beyond the noise and a margin."""
    baseline: Choice | None
    """Choice of the vendor library, always measured; None only if a landscape lacks it."""
    lead: float | None = field(metadata={"above": -1})
    """Baseline's time over that of `kernel`, minus 1; None without one of them."""
    tie_band: tuple[Config, ...]
    """Configs whose interval overlaps the fastest one's, so that the measurements do not tell them apart."""
    regret_bound: float | None = field(default=None, metadata={"least": 0})
    """Largest slowdown of the fastest against the best finalist, as a fraction; None without a final."""
    loss: float = field(default=0.0, metadata={"least": 0})
    """Score of the first choice over the fastest score, minus 1: accepted for the baseline, for a shared config, or
    for a kernel that needs fewer packages."""

    @property
    def fault(self) -> str:
        """Reason why no table has such a row; empty if one may."""
        return "" if self.choices else "a row has a choice at least"

    @property
    def kernel(self) -> Choice | None:
        """Choice that the lead is of: the one that ships, and the fastest other one where the baseline ships."""
        searched = [choice for choice in self.choices if choice.space != self.problem.baseline_space]
        if searched and searched[0] is self.choices[0]:
            return searched[0]
        return min(searched, key=lambda choice: choice.time_ns, default=None)

    def with_lead(self) -> Self:
        """Return the row with the lead that follows from its choices and baseline."""
        kernel, base = self.kernel, self.baseline
        return replace(self, lead=None if kernel is None or base is None else base.time_ns / kernel.time_ns - 1)

    @property
    def fastest(self) -> Choice | None:
        """Choice that leads the tie band; None if it is not among the choices."""
        return next((choice for choice in self.choices if self.tie_band[:1] == (choice.config,)), None)


@dataclass(frozen=True, slots=True)
class RangeRow:
    """One choice for a range of m. A range of a dynamic m has at least two sizes from 2 on, see `lone_sizes`."""

    problem: Workload
    """Problem with the largest m that was tuned or probed in the range."""
    first: int = field(metadata={"least": 1})
    """Smallest m of the range."""
    last: int = field(metadata={"least": 1})
    """Largest m of the range."""
    choice: Choice
    """Choice to run, as measured at the problem's m."""
    tuned: tuple[tuple[int, float], ...]
    """Pairs of tuned m and the choice's loss there, as a fraction of the fastest score."""
    held_out: tuple[tuple[int, float], ...] = ()
    """Pairs of m and loss for tuned m that had no influence on ranges and choices."""
    probed: tuple[tuple[int, float], ...] = ()
    """Pairs of m and loss for m between tuned ones, measured with both neighbours' best configs and the baseline."""

    @property
    def fault(self) -> str:
        """Reason why the values contradict each other; empty if they do not."""
        return "" if self.first <= self.last else f"last={self.last} is not an integer from {self.first} on"

    @property
    def worst_loss(self) -> float:
        """Largest loss at a tuned or probed m, as a fraction."""
        return max(loss for _, loss in (*self.tuned, *self.probed))


@dataclass(frozen=True, slots=True)
class GeneratedRow:
    """Choice for a kernel that a compiler generates between the products of a model."""

    source: str
    """SHA-256 of the kernel's source without its name, its arguments' types and the sizes that it is tuned for."""
    name: str
    """Name of the kernel where it was timed; elsewhere its number may differ."""
    choice: Choice
    """Config to run; its space has the compiler's name."""
    default_ns: float = field(metadata={"above": 0})
    """Time of the config that the compiler starts from, in ns."""


@dataclass(frozen=True, slots=True)
class Table:
    """Best configs of one device, problem by problem."""

    device: Device
    """GPU that the rows hold for."""
    rows: tuple[Row, ...]
    """One row per problem, sorted by the problem's name."""
    objective: str
    """Name of the objective that was minimised."""
    ranges: tuple[RangeRow, ...] = ()
    """Choices for ranges of m, sorted by problem and m, without overlap within a problem."""
    margin: float = field(default=0.02, metadata={"least": 0})
    """Lead over the baseline that a row needs to ship another kernel, as a fraction; kept rows may have had another."""
    measured_at: str = ""
    """UTC date of the newest measurement or final behind the rows, `2026-11-23`; empty without one on a GPU."""
    drivers: tuple[str, ...] = ()
    """Versions of the NVIDIA driver that the rows were measured with, sorted; empty where none is known."""
    batch_invariant: bool = field(default=False, metadata={"sparse": True})
    """Whether rows that differ in the range size alone give equal rows equal bits, and no other kernel serves them."""
    generated: tuple[GeneratedRow, ...] = field(default=(), metadata={"sparse": True})
    """One row per kernel between the products, sorted by source."""

    def with_generated(self, rows: Iterable[GeneratedRow]) -> Self:
        """Return the table with further rows of generated kernels, each in the place of one of its source."""
        found = {row.source: row for row in (*self.generated, *rows)}
        return replace(self, generated=tuple(found[source] for source in sorted(found)))
