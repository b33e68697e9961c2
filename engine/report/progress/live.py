"""Live view of a running campaign on a terminal."""

from collections.abc import Iterator
from itertools import islice

from rich.console import Console, Group, RenderableType
from rich.control import Control
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from gemmtune.engine.io.printing import visible
from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.workload import baseline_name
from gemmtune.engine.report.layout import lead_of, lead_text, readable, readable_unit
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams.executor import Load

_DRAW_SECONDS = 0.25
_OTHER_LINES = 9  # lines of the screen besides problems and workers


class LiveView(Callback):
    """Draws the state of a campaign, at most four times per second, from the campaign's own thread."""

    def __init__(self, state: CampaignState, console: Console) -> None:
        """Prepare the view; the caller enters `live` while the campaign runs."""
        self.live = Live(console=console, auto_refresh=False, transient=True)
        self._state = state
        self._console = console
        self._drawn: float | None = None
        self._cells: list[int] = []  # per line that was drawn last

    def on_final(self, final: Final | FinalNotHeld) -> None:
        """Print why a final could not be held."""
        if isinstance(final, FinalNotHeld):
            self.on_notice(no_final(final))

    def on_notice(self, line: str) -> None:
        """Print the line above the view."""
        self._erase_broken()
        self.live.console.print(visible(line), markup=False, highlight=False, soft_wrap=True)

    def on_save(self) -> None:
        """Draw the state, which says what is written."""
        self._drawn = None
        self.on_load(None, None)

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Draw the state, unless it was drawn a moment ago."""
        now = self._state.clock()
        if self._drawn is None or now - self._drawn >= _DRAW_SECONDS:
            self._drawn = now
            self._erase_broken()
            parts = Group(*self._parts())
            drawn = self._console.render_lines(parts, pad=False)[: self._console.height]
            self._cells = [Segment.get_line_length(line) for line in drawn]
            self.live.update(parts, refresh=True)

    def _erase_broken(self) -> None:
        """Erase as many lines as a narrower window made of those drawn; the view erases one per line that it drew."""
        broken = sum(max(0, cells - 1) // self._console.width for cells in self._cells)
        self._cells = []
        self._console.control(Control(*[(ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)] * broken))

    def _parts(self) -> Iterator[RenderableType]:
        state = self._state
        head = Table.grid(padding=(0, 1))
        facts = f"{state.work_text}, {state.ended}/{state.tasks} tasks done"
        bar = ProgressBar(max(state.total, 1), state.done, width=self._console.width // 8)
        head.add_row(bar, Text(facts, no_wrap=True, overflow="ellipsis"))
        yield head
        for text in (state.load_text, state.failures_text and f"failed: {state.failures_text}"):
            if text:
                yield Text(text, no_wrap=True, overflow="ellipsis")
        if state.workers:
            yield self._workers()
        yield self._problems()

    def _workers(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("GPU", "timed", "busy"):
            table.add_column(name, justify="left" if name == "GPU" else "right", no_wrap=True)
        for name, worker in islice(sorted(self._state.workers.items()), self._console.height // 3):
            busy = "given up" if worker.lost else "-" if worker.busy is None else f"{worker.busy:.0%}"
            table.add_row(name, str(worker.measured), busy)
        return table

    def _problems(self) -> Table:
        """Return a table of the problems measured last, as many as fit; a narrow screen cuts their names first."""
        state, unit = self._state, readable_unit(self._state.unit)
        table = Table(box=None, pad_edge=False)
        baseline = baseline_name(state.problems)
        table.add_column("problem", min_width=8)
        for name in (f"best {unit}", f"{baseline} {unit}", "lead", "evals"):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column(no_wrap=True)
        room = max(1, self._console.height - _OTHER_LINES - min(len(state.workers), self._console.height // 3))
        shown = max(1, room - 1) if len(state.problems) > room else room
        for problem, of in islice(reversed(state.problems.items()), shown):
            lead = lead_text(lead_of(of.baseline, of.best))
            scores = readable(of.best, state.unit), readable(of.baseline, state.unit), lead, f"{of.done}/{of.total}"
            table.add_row(Text(visible(problem.name), no_wrap=True), *scores, "" if of.tasks else "done")
        if len(state.problems) > shown:
            table.add_row(Text(f"{len(state.problems) - shown} more", no_wrap=True))
        return table


def no_final(final: FinalNotHeld) -> str:
    """Return the line that says why a final could not be held."""
    return f"no final of {final.problem.name}: {final.reason}"
