"""What goes to the terminal."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping

__all__ = ["columns", "complain", "print_json"]


def complain(message: str) -> None:
    """Say on one line of stderr what went wrong."""
    print(f"gemmtune: {' '.join(message.split())}", file=sys.stderr)


def print_json(record: Mapping[str, object]) -> None:
    """Print one JSON object for programs."""
    print(json.dumps(record, indent=2, ensure_ascii=False))


def columns() -> int | None:
    """Columns of the terminal; a file or a pipe has no limit."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
