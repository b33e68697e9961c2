"""Print to the terminal."""

from __future__ import annotations

import shutil
import sys

from gemmtune.engine.io.printing import print_json, print_notice, print_text
from gemmtune.engine.report.layout import Report
from gemmtune.engine.scheduling.callbacks import Callback

__all__ = ["NoticePrinter", "columns", "show"]


class NoticePrinter(Callback):
    """Prints the notices of a campaign whose progress is not shown."""

    def on_notice(self, line: str) -> None:
        """Print the line on stderr."""
        print_notice(line)


def show(report: Report, *, as_json: bool) -> None:
    """Print a report as text for a person, or as one JSON object for programs."""
    if as_json:
        print_json(report.to_json())
    else:
        print_text(report.to_text(columns()))


def columns() -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, which have no limit."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
