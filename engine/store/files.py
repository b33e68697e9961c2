"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

from gemmtune.engine.records.errors import UsageError

__all__ = ["write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Write a file; what was there before stays until the new content is on disk, and stays where that fails.

    Raises:
        UsageError: the folder is missing or not writable, or the disk is full; nothing was changed.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}; nothing was changed") from None
    finally:
        if temporary.is_file():
            temporary.unlink()
