"""Show progress on standard error: a live view on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from gemmtune.engine.report.progress.lines import LINE_SECONDS, LineWriter, write_line
from gemmtune.engine.report.progress.live import LiveView
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.scheduling.callbacks import Callback

__all__ = ["progress_bar", "show_progress"]


@contextmanager
def show_progress(*, quiet: bool, unit: str = "ns") -> Iterator[tuple[Callback, ...]]:
    """Show a campaign's progress while the block runs.

    A campaign of ten seconds or more, or one that was interrupted, ends with a line that sums it up.

    Args:
        quiet: show nothing.
        unit: unit of the scores.

    Yields:
        The callbacks to give to the campaign.
    """
    if quiet:
        yield ()
        return
    state, console = CampaignState(unit, time.monotonic), Console(stderr=True)
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
        if state.done and (not completed or state.seconds >= LINE_SECONDS):
            write_line(state.summary)


@contextmanager
def progress_bar(description: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Draw a progress bar on a terminal while the block runs; yield a function of the number done and the total."""
    console = Console(stderr=True, quiet=quiet)
    if not console.is_terminal:
        yield lambda done, total: None
        return
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(description, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)
