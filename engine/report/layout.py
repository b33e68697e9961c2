"""Plain-text tables."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as RichTable

from gemmtune.engine.records.config import Config

__all__ = ["config_text", "microseconds", "table_text"]


def table_text(headers: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> str:
    """Rows under headers, as wide as they need to be; columns are right-aligned unless their header is in `left`."""
    grid = RichTable(box=SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        grid.add_column(header, justify="left" if header in left else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*row)
    buffer = io.StringIO()
    Console(file=buffer, width=240, color_system=None, highlight=False, markup=False).print(grid)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines() if line.strip())


def config_text(config: Config | None) -> str:
    """`BLOCK_K=64 BLOCK_M=128 …`; a dash for none."""
    if config is None:
        return "-"
    return " ".join(f"{name}={value}" for name, value in config.items()) or "(library)"


def microseconds(time_ns: float | None) -> str:
    """One decimal; a dash for none."""
    return "-" if time_ns is None else f"{time_ns / 1e3:.1f}"
