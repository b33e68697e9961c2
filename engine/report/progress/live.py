"""The live view of a running campaign, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.report.layout import readable, readable_unit
from gemmtune.engine.report.progress.state import Standing

__all__ = ["LiveView"]

_DRAW_SECONDS = 0.25
_OTHER_LINES = 9  # of the screen, besides those of problems and workers


class LiveView:
    """Draws a standing, at most four times a second, and by the caller's own thread."""

    def __init__(self, standing: Standing, console: Console) -> None:
        """The caller enters `live` for the time of the campaign."""
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._standing = standing
        self._console = console
        self._last: float | None = None

    def draw(self) -> None:
        """Draw, where the last time is long enough ago."""
        now = self._standing.now()
        if self._last is None or now - self._last >= _DRAW_SECONDS:
            self._last = now
            self.live.update(Group(*self._parts()), refresh=True)

    def _parts(self) -> Iterator[RenderableType]:
        standing = self._standing
        head = Table.grid(padding=(0, 1))
        facts = [
            f"{standing.done}/{standing.total} evaluations",
            standing.rate_text,
            standing.left_text,
            f"{standing.ended}/{standing.tasks} tasks done",
        ]
        bar = ProgressBar(max(standing.total, 1), standing.done, width=20)
        head.add_row(bar, Text(", ".join(facts), no_wrap=True, overflow="ellipsis"))
        yield head
        for text in (standing.load_text, standing.failures_text and f"failed: {standing.failures_text}"):
            if text:
                yield Text(text, no_wrap=True, overflow="ellipsis")
        if standing.workers:
            yield self._workers()
        yield self._problems()

    def _workers(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("GPU", "timed", "busy"):
            table.add_column(name, justify="left" if name == "GPU" else "right", no_wrap=True)
        for name, worker in islice(sorted(self._standing.workers.items()), self._console.height // 3):
            busy = "given up" if worker.lost else "-" if worker.busy is None else f"{worker.busy:.0%}"
            table.add_row(name, str(worker.measured), busy)
        return table

    def _problems(self) -> Table:
        """Those heard of last, as many as there is room for."""
        standing, unit = self._standing, readable_unit(self._standing.unit)
        table = Table(box=None, pad_edge=False)
        for name in ("problem", f"best {unit}", f"{BASELINE_SPACE} {unit}", f"vs {BASELINE_SPACE}", "evals", ""):
            table.add_column(name, justify="left" if name in ("problem", "") else "right", no_wrap=True)
        room = max(1, self._console.height - _OTHER_LINES - min(len(standing.workers), self._console.height // 3))
        for problem, of in islice(reversed(standing.problems.items()), room):
            lead = f"{of.baseline / of.best:.3f}×" if of.best is not None and of.baseline is not None else "-"
            scores = readable(of.best, standing.unit), readable(of.baseline, standing.unit)
            table.add_row(problem.name, *scores, lead, f"{of.done}/{of.total}", "" if of.tasks else "done")
        return table
