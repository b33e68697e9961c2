"""Show progress on standard error: a live view on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from gemmtune.engine.io.printing import print_notice
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.report.layout import count
from gemmtune.engine.report.progress.live import LiveView, no_final
from gemmtune.engine.report.progress.state import CampaignState, duration
from gemmtune.engine.report.progress.work import QUIET
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Load

_LINE_SECONDS = 10.0  # between two lines, and before a campaign is worth a summary
_WAITING_SECONDS = 0.5  # without an event before a line says "waiting"


@contextmanager
def show_progress(*, quiet: bool, unit: str = "ns") -> Iterator[tuple[CampaignState, Callback]]:
    """Show a campaign's progress while the block runs.

    A campaign of ten seconds or more, or one that was interrupted, ends with a line that sums it up. Yield the
    callbacks to give to the campaign, whose scores are in `unit`: its state, and what shows it. Where quiet, notices
    alone are printed.
    """
    state, console = CampaignState(unit, time.monotonic), Console(stderr=True)
    if quiet or QUIET.get():
        yield state, NoticePrinter()
        return
    completed = False
    try:
        if console.is_terminal:
            view = LiveView(state, console)
            with view.live:
                yield state, view
        else:
            yield state, LineWriter(state)
        completed = True
    finally:
        if state.done and (not completed or state.seconds >= _LINE_SECONDS):
            print_notice(state.summary)


@contextmanager
def progress_bar(description: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar while the block runs; off a terminal, write a line every ten seconds.

    Yield a function of the number done and the total.
    """
    quiet = quiet or QUIET.get()
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield (lambda done, total: None) if quiet else _CountWriter(description, time.monotonic)
        return
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


class _CountWriter:
    """Writes how much is done, every ten seconds."""

    def __init__(self, description: str, clock: Callable[[], float]) -> None:
        self._description = description
        self._clock = clock
        self._began = self._written = clock()

    def __call__(self, done: int, total: int) -> None:
        """Write a line if one is due, with the time left at the rate so far."""
        now = self._clock()
        if now - self._written >= _LINE_SECONDS and done:
            self._written = now
            left = (now - self._began) * (total - done) / done
            print_notice(f"{done}/{total} {self._description} ({done / total:.0%}), about {duration(left)} left")


class NoticePrinter(Callback):
    """Prints the notices of a campaign whose progress is not shown."""

    def on_notice(self, line: str) -> None:
        """Print the line on stderr."""
        print_notice(line)


class LineWriter(NoticePrinter):
    """Writes a line of progress to standard error every ten seconds, and each notice at once."""

    def __init__(self, state: CampaignState) -> None:
        """Follow this state, which hears each event first."""
        self._state = state
        self._written = self._event = state.clock()

    def on_measurement(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """Write the best of the measured problem, if a line is due."""
        self._write_event(lambda: self._state.problem_text(measurement.task.problem))

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Write why the search ended, if a line is due."""
        self._write_event(lambda: f"{search.task.key}: {reason}")

    def on_final(self, final: Final | FinalNotHeld) -> None:
        """Write the result of the final, if a line is due; a final that was not held is always written."""
        if isinstance(final, FinalNotHeld):
            self.on_notice(no_final(final))
            return
        ties = count(len(final.tie_band), "config")
        self._write_event(
            lambda: f"final of {final.problem.name}: tie band of {ties}, regret at most {final.regret_bound:.2%}"
        )

    def on_save(self) -> None:
        """Write that the table is written, where lines were written before."""
        if self._state.seconds >= _LINE_SECONDS:
            print_notice(self._state.work_text)

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Write that the campaign waits, if a line is due and nothing happens."""
        if self._state.clock() - self._event >= _WAITING_SECONDS:
            self._write(lambda: "waiting")

    def _write_event(self, text: Callable[[], str]) -> None:
        self._event = self._state.clock()
        self._write(text)

    def _write(self, text: Callable[[], str]) -> None:
        now = self._state.clock()
        if now - self._written >= _LINE_SECONDS:
            self._written = now
            print_notice("; ".join(filter(None, [self._state.work_text, self._state.load_text, text()])))
