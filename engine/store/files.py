"""Write files whole or not at all, and name what they hold."""

from __future__ import annotations

import os
from pathlib import Path

from gemmtune.engine.records.errors import UsageError

__all__ = ["file_stem", "write_whole"]


def file_stem(file: Path) -> str:
    """Return `conv_a100` for `folder/conv_a100.csv.gz`: the name of a task that has no other."""
    return file.name.removesuffix(".gz").removesuffix(".csv").removesuffix(".json")


def write_whole(path: Path, content: bytes) -> None:
    """Write a file; an existing one stays until the new content is on disk, and stays if that fails.

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
