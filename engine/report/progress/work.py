"""Say what a command does before it imports and reads: this module imports nothing that takes time."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from gemmtune.engine.io.printing import print_notice

__all__ = ["show_work"]

_SILENT_SECONDS = 2.0  # before a line says what a command does


@contextmanager
def show_work(doing: str, *, quiet: bool) -> Iterator[None]:
    """Say what a command does while the block runs: on a terminal at once, elsewhere after a moment."""
    if quiet:
        yield
    elif sys.stderr is not None and sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status(doing):
            yield
    else:
        line = Timer(_SILENT_SECONDS, print_notice, [f"{doing} ..."])
        line.daemon = True
        line.start()
        try:
            yield
        finally:
            line.cancel()
