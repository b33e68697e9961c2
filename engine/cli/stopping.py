"""Ctrl-C and a polite kill end a command in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "stoppable"]


class Stopped(BaseException):
    """Ctrl-C or a polite kill; no Exception, so that nothing on the way takes it for a failure of its own."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number


@contextmanager
def stoppable() -> Iterator[None]:
    """Let SIGINT and SIGTERM end what runs in order, with its processes; one that is ignored stays ignored."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(number)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
