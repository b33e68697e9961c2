"""Progress of a running campaign, on standard error: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.final import Final, Unsettled
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.report.layout import count
from gemmtune.engine.report.progress.live import LiveView
from gemmtune.engine.report.progress.state import Standing
from gemmtune.engine.scheduling.scheduler import Watcher
from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["counting", "watching"]

_LINE_SECONDS = 10.0


@contextmanager
def watching(quiet: bool, unit: str = "ns", others: Sequence[Watcher] = ()) -> Iterator[Watcher]:
    """A watcher for the time of a campaign, whose scores have that unit; a quiet one says nothing.

    A campaign that took a while, or was broken off, is summed up in a last line. The others hear all of it too.
    """
    console = Console(stderr=True, quiet=quiet)
    standing = Standing(unit, time.monotonic)
    view = LiveView(standing, console) if console.is_terminal and not quiet else None
    watcher = _Teller(standing, view, quiet, others)
    completed = False
    try:
        if view is None:
            yield watcher
        else:
            with view.live:
                yield watcher
        completed = True
    finally:
        if not quiet and standing.done and (not completed or standing.seconds >= _LINE_SECONDS):
            print(standing.summary, file=sys.stderr, flush=True)


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


class _Teller:
    """Keeps the standing, and has it drawn, or says it in a line now and then."""

    def __init__(self, standing: Standing, view: LiveView | None, quiet: bool, others: Sequence[Watcher]) -> None:
        self._standing = standing
        self._view = view
        self._quiet = quiet
        self._others = others
        self._last = standing.now()

    def began(self, searches: Sequence[TaskSearch]) -> None:
        self._standing.began(searches)
        for other in self._others:
            other.began(searches)

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        self._standing.measured(measurement, score, known=known)
        self._show(lambda: self._standing.problem_text(measurement.task.problem))
        for other in self._others:
            other.measured(measurement, score, known=known)

    def ended(self, search: TaskSearch, why: str) -> None:
        self._standing.search_ended(search)
        self._show(lambda: f"{search.task.key}: {why}")
        for other in self._others:
            other.ended(search, why)

    def settled(self, final: Final | Unsettled) -> None:
        for other in self._others:
            other.settled(final)
        if isinstance(final, Unsettled):
            self._say(f"no final of {final.problem.name}: {final.reason}")
            return
        self._standing.finals += 1
        ties = count(len(final.tie_band), "config")
        self._show(
            lambda: f"final of {final.problem.name}: tie band of {ties}, regret at most {final.regret_bound:.2%}"
        )

    def noticed(self, notice: str) -> None:
        for other in self._others:
            other.noticed(notice)
        self._say(notice)

    def looked(self, load: Load | None, seconds_left: float | None) -> None:
        self._standing.looked(load, seconds_left)
        if self._view is not None:
            self._view.draw()
        for other in self._others:
            other.looked(load, seconds_left)

    def waited(self) -> None:
        self._show(lambda: "waiting")
        for other in self._others:
            other.waited()

    def _say(self, line: str) -> None:
        if self._view is not None:
            self._view.live.console.print(line, markup=False, highlight=False, soft_wrap=True)
        elif not self._quiet:
            print(line, file=sys.stderr, flush=True)

    def _show(self, what: Callable[[], str]) -> None:
        """How far it is, and this, in a line now and then."""
        standing, now = self._standing, self._standing.now()
        if self._quiet or self._view is not None or now - self._last < _LINE_SECONDS:
            return
        self._last = now
        facts = [f"{standing.done}/{standing.total} evaluations", standing.rate_text, standing.left_text]
        print("; ".join([", ".join(facts), *filter(None, [standing.load_text]), what()]), file=sys.stderr, flush=True)
