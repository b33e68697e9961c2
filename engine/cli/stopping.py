"""End a command in order on SIGINT and SIGTERM."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Stopped", "stoppable"]


class Stopped(BaseException):
    """SIGINT or SIGTERM; not an Exception, so that no handler takes it for a failure of a job."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.signal = number
        """Number of the signal."""


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped on SIGINT and SIGTERM while the block runs, so that its processes end; ignored signals stay so."""

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
