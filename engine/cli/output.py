"""Print to the terminal."""

import os
import re
import shutil
import sys

from gemmtune.engine.io.printing import print_json, print_text
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.layout import Report
from gemmtune.engine.report.why import Why

_KINDS = {"win": "32", "tie": "2", "loss": "33"}  # SGR codes: green, dim, yellow
_COLOURS = {
    **{str(reason): _KINDS[reason.kind] for reason in Why},
    **{"ok": "32", "advice": "33", "fault": "31", "no": "31", "does not work": "31"},
    **{status.value: "31" for status in Status if status is not Status.OK},
}
_PAINTED = re.compile(rf"(?<![^ \n])(?:{'|'.join(map(re.escape, _COLOURS))})(?=  |:|,|$)", re.MULTILINE)


def show(report: Report, *, as_json: bool) -> None:
    """Print a report as text for a person, or as one JSON object for programs."""
    if as_json:
        print_json(report.to_json())
    else:
        is_plain = columns() is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
        print_text(report.to_text(columns()), str if is_plain else paint)


def show_over(report: Report) -> None:
    """Print a report in place of what a terminal shows; elsewhere, below it."""
    if columns() is not None:
        sys.stdout.write("\x1b[H\x1b[J")
    show(report, as_json=False)


def paint(text: str) -> str:
    """Return a report's text with gains in green, what gains nothing dim, losses in yellow, and faults in red."""
    return _PAINTED.sub(lambda found: f"\x1b[{_COLOURS[found[0]]}m{found[0]}\x1b[0m", text)


def columns() -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, which have no limit."""
    return shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else None
