"""Lock of a GPU: campaigns of one host time on it one after the other, as launches side by side spoil each other."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from tempfile import gettempdir


@contextmanager
def gpu_lock(gpu: str) -> Iterator[None]:
    """Hold a GPU, named by its UUID; wait for the processes of this host that hold it or asked for it before.

    A process that ends holds nothing. Where this user may not open the files of the locks, nobody waits.
    """
    with ExitStack() as held, ExitStack() as gate:  # one process waits for the GPU, the others at the gate
        for name, until in (("gate", gate), ("lock", held)):
            path = f"{gettempdir()}/gemmtune-{gpu}-{name}"
            new = 0 if os.path.exists(path) else os.O_CREAT  # which a kernel may refuse for another user's file
            with suppress(OSError):
                until.callback(os.close, file := os.open(path, os.O_RDONLY | os.O_NOFOLLOW | new, 0o644))
                fcntl.flock(file, fcntl.LOCK_EX)
        gate.close()
        yield
