"""Progress of a running campaign, on standard error: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column

from gemmtune.engine.campaign.plan import BASELINE_SPACE
from gemmtune.engine.campaign.scheduler import TaskSearch, Watcher
from gemmtune.engine.records.final import Final, Unsettled
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.report.layout import count, readable, readable_unit

__all__ = ["counting", "watching"]

_LINE_SECONDS = 10.0
_TELLING = 8  # new evaluations before the rate is worth extrapolating


@contextmanager
def watching(quiet: bool, unit: str = "ns") -> Iterator[Watcher]:
    """A watcher for the time of a campaign, whose scores have that unit; a quiet one says nothing."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield _Lines(quiet, unit)
        return
    columns = (
        BarColumn(bar_width=8),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True)),  # cut where it does not fit
    )
    with Progress(*columns, console=console, transient=True, expand=True) as progress:
        yield _Bar(progress, unit)


@contextmanager
def counting(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A function to call with the number done and the total; it draws a bar where there is a terminal."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


class _Standing(ABC):
    """What is known so far; a subclass says it."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self.total = 0
        self.done = 0
        self.new = 0
        self._best: dict[Problem, float] = {}
        self._baseline: dict[Problem, float] = {}
        self._started = time.monotonic()

    def began(self, searches: Sequence[TaskSearch]) -> None:
        self.total = sum(search.evaluations for search in searches)
        self._started = time.monotonic()

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        self.done += 1
        self.new += not known
        task = measurement.task
        if score is not None:
            of_space = self._baseline if task.space == BASELINE_SPACE else self._best
            of_space[task.problem] = min(score, of_space.get(task.problem, score))
        self.show(self.against_baseline(task.problem))

    def settled(self, final: Final | Unsettled) -> None:
        if isinstance(final, Unsettled):
            self.noticed(f"no final of {final.problem.name}: {final.reason}")
        else:
            ties = count(len(final.tie_band), "config")
            self.show(f"final of {final.problem.name}: tie band of {ties}, regret at most {final.regret_bound:.2%}")

    @abstractmethod
    def noticed(self, notice: str) -> None: ...

    @abstractmethod
    def show(self, what: str) -> None:
        """Say how far it is, and this."""

    @property
    def rate(self) -> str:
        rate = self.new / max(time.monotonic() - self._started, 1e-3)
        return f"{rate:.{1 if rate < 100 else 0}f}/s"

    @property
    def left(self) -> str:
        """The time left at the rate so far; while processes still start, the rate says nothing."""
        if self.new < _TELLING:
            return "starting"
        elapsed = time.monotonic() - self._started
        return f"about {(self.total - self.done) * elapsed / self.new:.0f} s left"

    def against_baseline(self, problem: Problem) -> str:
        if problem not in self._best:
            return f"{problem.name}"
        best = f"{problem.name} {readable(self._best[problem], self._unit)} {readable_unit(self._unit)}"
        if problem in self._baseline:
            best += f", {self._baseline[problem] / self._best[problem]:.3f}× {BASELINE_SPACE}"
        return best


class _Bar(_Standing):
    def __init__(self, progress: Progress, unit: str) -> None:
        super().__init__(unit)
        self._progress = progress
        self._bar = progress.add_task("tuning", total=None, rate="")

    def began(self, searches: Sequence[TaskSearch]) -> None:
        super().began(searches)
        self._progress.update(self._bar, total=self.total)

    def noticed(self, notice: str) -> None:
        self._progress.console.print(notice, markup=False, highlight=False, soft_wrap=True)

    def show(self, what: str) -> None:
        self._progress.update(self._bar, completed=self.done, rate=self.rate, description=what)

    def waited(self) -> None:
        """The bar's clock moves by itself."""


class _Lines(_Standing):
    def __init__(self, quiet: bool, unit: str) -> None:
        super().__init__(unit)
        self._quiet = quiet
        self._last = time.monotonic()

    def waited(self) -> None:
        self.show("waiting")

    def noticed(self, notice: str) -> None:
        if not self._quiet:
            print(notice, file=sys.stderr, flush=True)

    def show(self, what: str) -> None:
        now = time.monotonic()
        if self._quiet or now - self._last < _LINE_SECONDS:
            return
        self._last = now
        line = f"{self.done}/{self.total} evaluations, {self.rate}, {self.left}; {what}"
        print(line, file=sys.stderr, flush=True)
