"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space

__all__ = ["bound", "config_text", "count", "microseconds", "readable", "readable_unit", "table_text"]

_GAP = "  "
_READABLE = {"ns": ("µs", 1e3, 1), "J": ("mJ", 1e-3, 2)}  # unit to the one printed, its size, and its decimals


def table_text(
    headers: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = (), width: int | None = None
) -> str:
    """Rows under headers; columns are right-aligned unless their header is in `left`.

    Where that is wider than `width`, the last cell of each row that has one stands on a line of its own below it.
    """
    rows = list(rows)
    lines = _lines(headers, rows, left)
    if width is None or max(map(len, lines)) <= width:
        return "\n".join(lines)
    head, rule, *body = _lines(headers[:-1], [row[:-1] for row in rows], left)
    below = [[f"    {row[-1]}"] if row[-1] else [] for row in rows]
    return "\n".join([head, rule, *(text for line, more in zip(body, below, strict=True) for text in (line, *more))])


def config_text(task: Task, config: Config | None) -> str:
    """`BLOCK_M=128 BLOCK_N=64 …` in the order of the space's params, where it is installed; a dash for no config."""
    if config is None:
        return "-"
    space = _space(task.space)
    order = [param.name for param in space.params(task)] if space else []
    names = [*(name for name in order if name in config), *(name for name in config if name not in order)]
    return " ".join(f"{name}={config[name]}" for name in names)


def microseconds(time_ns: float | None) -> str:
    """One decimal; a dash for none."""
    return readable(time_ns, "ns")


def readable_unit(unit: str) -> str:
    """The unit a person reads a score in: µs for ns, mJ for J."""
    return _READABLE[unit][0] if unit in _READABLE else unit


def readable(score: float | None, unit: str) -> str:
    """A score of that unit as a number of the readable one; a dash for none."""
    _, size, decimals = _READABLE.get(unit, (unit, 1.0, 4))
    return "-" if score is None else f"{score / size:.{decimals}f}"


def bound(share: float | None) -> str:
    """`≤ 0.12%`; a dash for none."""
    return "-" if share is None else f"≤ {share:.2%}"


def count(number: int, thing: str) -> str:
    """`1 row`, `10 rows`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _lines(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    aligns = ["<" if header in left else ">" for header in headers]
    rule = ["─" * width for width in widths]
    lines = []
    for row in (headers, rule, *rows):
        cells = (f"{cell:{align}{width}}" for cell, align, width in zip(row, aligns, widths, strict=True))
        lines.append(_GAP.join(cells).rstrip())
    return lines


@cache
def _space(name: str) -> Space | None:
    try:
        return registry.space(name)
    except GemmtuneError:
        return None
