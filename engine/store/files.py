"""Write files whole or not at all, and name what they hold."""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path

from gemmtune.engine.records.errors import UsageError

_STALE_SECONDS = 3600.0
"""Age at which a hidden file is stale; writing takes seconds."""


def file_stem(file: Path) -> str:
    """Return `conv_a100` for `folder/conv_a100.csv.gz`: the name of a task that has no other."""
    return file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other processes that lock the folder waiting, where its file system can lock."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file; an existing one stays until the new content is on disk, and stays if that fails.

    The content goes to a hidden file beside `path` first. Such files of writers that were killed are removed.

    Raises:
        UsageError: the folder is missing or not writable, or the disk is full; nothing was changed.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    try:
        with temporary.open("xb") as stream:  # a new file: a link that somebody planted is not followed
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; nothing was changed") from None
    finally:
        if temporary.is_file():
            temporary.unlink()
    for left in path.parent.glob(f".{escape(path.name)}.*.part"):
        _remove_stale(left)


def _remove_stale(file: Path) -> None:
    """Remove a hidden file of this user that is so old that its writer must be dead."""
    with suppress(OSError):
        found = file.lstat()
        own = stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()
        if own and time.time() - found.st_mtime > _STALE_SECONDS:
            file.unlink()
