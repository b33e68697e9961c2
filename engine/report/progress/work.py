"""Say what a command does before it imports and reads: this module imports nothing that takes time."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import Timer

from gemmtune.engine.io.printing import print_notice

_SILENT_SECONDS = 2.0  # before a line says what a command does

QUIET = ContextVar("QUIET", default=False)
"""Whether the command shows no progress."""


@contextmanager
def show_work(doing: str, *, quiet: bool) -> Iterator[None]:
    """Say what a command does while the block runs, if it takes longer than a moment."""
    if quiet or QUIET.get():
        yield
        return
    with ExitStack() as shown:
        line = Timer(_SILENT_SECONDS, _say, [doing, shown])
        line.daemon = True
        line.start()
        try:
            yield
        finally:
            line.cancel()
            line.join()


def _say(doing: str, shown: ExitStack) -> None:
    """Print a line, or show it on a terminal until the stack ends."""
    if sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console

        shown.enter_context(Console(stderr=True).status(doing))
    else:
        print_notice(f"{doing} ...")
