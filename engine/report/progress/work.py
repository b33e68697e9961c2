"""Say what a command does before it imports and reads: this module imports nothing that takes time."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from threading import Timer

from gemmtune.engine.io.printing import print_notice

__all__ = ["is_quiet", "show_work", "without_progress"]

_SILENT_SECONDS = 2.0  # before a line says what a command does

_QUIET = ContextVar("quiet", default=False)


@contextmanager
def without_progress(wanted: bool) -> Iterator[None]:
    """Show no progress while the block runs, if that is wanted."""
    token = _QUIET.set(wanted)
    try:
        yield
    finally:
        _QUIET.reset(token)


def is_quiet() -> bool:
    """Return whether this is a block without progress."""
    return _QUIET.get()


@contextmanager
def show_work(doing: str, *, quiet: bool) -> Iterator[None]:
    """Say what a command does while the block runs, if it takes longer than a moment."""
    if quiet or is_quiet():
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
