"""Print to the terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping

from gemmtune.engine.report.layout import Report
from gemmtune.engine.scheduling.callbacks import Callback

__all__ = ["NoticePrinter", "columns", "complain", "print_json", "show"]


class NoticePrinter(Callback):
    """Prints the notices of a campaign whose progress is not shown."""

    def on_notice(self, line: str) -> None:
        """Print the line on stderr."""
        print(line, file=sys.stderr)


def complain(message: str) -> None:
    """Print one line on stderr that says what went wrong."""
    print(f"gemmtune: {' '.join(message.split())}", file=sys.stderr)


def show(report: Report, *, as_json: bool) -> None:
    """Print a report as text for a person, or as one JSON object for programs."""
    if as_json:
        print_json(report.to_json())
    else:
        print(report.to_text(columns()))


def print_json(record: Mapping[str, object]) -> None:
    """Print one JSON object for programs."""
    print(json.dumps(record, indent=2, ensure_ascii=False))


def columns() -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, which have no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
