"""End a command in order on SIGINT, SIGTERM and SIGHUP, and where code that is not gemmtune's ends the process."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from gemmtune.engine.records.errors import Stopped

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that end a command: Ctrl-C, a scheduler's request, a lost terminal."""
_DEAF_SECONDS = 1.0  # after a signal, while the command ends


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise Stopped on a signal while the block runs, so that its processes end; ignored signals stay so.

    Further signals are ignored for a second, and all of them once the block has ended by one.
    """
    stopped_at = -_DEAF_SECONDS

    def stop(number: int, _frame: FrameType | None) -> None:
        nonlocal stopped_at
        now = time.monotonic()
        if now - stopped_at >= _DEAF_SECONDS:
            stopped_at = now
            raise Stopped(number)

    before = {number: signal.getsignal(number) for number in SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    try:
        yield
    except Stopped:
        before = dict.fromkeys(before, signal.SIG_IGN)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def exits_raised() -> Iterator[None]:
    """Raise SystemExit on `os._exit` while the block runs, so that a plug-in does not end the command unnamed.

    Other threads, forked children, and libraries that leave on their own end their process as before.
    """
    leave, process = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() == process and threading.current_thread() is threading.main_thread():
            raise SystemExit(f"os._exit({status})")
        leave(status)

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave
