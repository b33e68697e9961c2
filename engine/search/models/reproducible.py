"""Choices that come out equal on every machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController

from gemmtune.engine.search.models.coordinates import Reals


@contextmanager
def one_thread() -> Iterator[None]:
    """Run linear algebra on one thread; more threads slow builders and speed up nothing here."""
    with _controller().limit(limits=1):
        yield


def argmax(values: Reals) -> int:
    """Return the index of the first largest value, ignoring last bits, in which machines differ."""
    span = float(values.max() - values.min()) or 1.0
    return int(np.argmax(np.round((values - values.min()) / span, 9)))


@cache
def _controller() -> ThreadpoolController:
    """Return the controller of the loaded libraries that have threads; finding them takes a while."""
    import scipy.linalg  # noqa: F401 (loads a library with threads, which must be loaded before it is controlled)

    return ThreadpoolController()
