"""Parts that every report is made of: text tables, readable numbers and JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cache
from typing import Protocol

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space

__all__ = [
    "Report",
    "bound",
    "columns_text",
    "config_text",
    "count",
    "json_fields",
    "microseconds",
    "readable",
    "readable_unit",
    "span",
    "speedup",
    "table_text",
]

_GAP = "  "
_READABLE = {"ns": ("µs", 1e3, 1), "J": ("mJ", 1e-3, 2)}  # unit: the one printed, its size, its decimals


class Report(Protocol):
    """One result of a command, printed as text or as JSON."""

    def to_text(self, width: int | None = None) -> str:
        """Return the text for a person; long configs go on lines of their own where they exceed `width` columns."""

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""


def table_text(
    headers: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = (), width: int | None = None
) -> str:
    """Return rows under headers; columns are right-aligned unless their header is in `left`.

    If the table is wider than `width`, the last cell of each row goes on a line of its own below the row.
    """
    rows = list(rows)
    lines = _lines(headers, rows, left)
    if width is None or max(map(len, lines)) <= width:
        return "\n".join(lines)
    head, rule, *body = _lines(headers[:-1], [row[:-1] for row in rows], left)
    below = [[f"    {row[-1]}"] if row[-1] else [] for row in rows]
    return "\n".join([head, rule, *(text for line, more in zip(body, below, strict=True) for text in (line, *more))])


def columns_text(columns: Mapping[str, Sequence[str]], left: Sequence[str] = (), width: int | None = None) -> str:
    """Return the table of these columns, header to cells; see `table_text`."""
    return table_text(list(columns), zip(*columns.values(), strict=True), left, width)


def json_fields(record: object, *names: str) -> dict[str, object]:
    """Return attributes of a record by name, as JSON values."""
    return {name: _json_value(getattr(record, name)) for name in names}


def config_text(task: Task, config: Config | None) -> str:
    """Return `BLOCK_M=128 BLOCK_N=64 …`, in the order of the space's params if it is installed; a dash for None."""
    if config is None:
        return "-"
    space = _space(task.space)
    order = [param.name for param in space.params(task)] if space else []
    names = [*(name for name in order if name in config), *(name for name in config if name not in order)]
    return " ".join(f"{name}={config[name]}" for name in names)


def microseconds(time_ns: float | None) -> str:
    """Return a time in µs with one decimal; a dash for None."""
    return readable(time_ns, "ns")


def readable_unit(unit: str) -> str:
    """Return the unit that is printed for scores of this unit: µs for ns, mJ for J."""
    return _READABLE[unit][0] if unit in _READABLE else unit


def readable(score: float | None, unit: str) -> str:
    """Return a score of this unit as a number of the printed unit; a dash for None."""
    _, size, decimals = _READABLE.get(unit, (unit, 1.0, 4))
    return "-" if score is None else f"{score / size:.{decimals}f}"


def speedup(baseline: float | None, best: float | None) -> str:
    """Return `1.250×`, the baseline's score over the best; a dash if either is missing."""
    return "-" if best is None or baseline is None else f"{baseline / best:.3f}×"


def bound(share: float | None) -> str:
    """Return `≤ 0.12%`; a dash for None."""
    return "-" if share is None else f"≤ {share:.2%}"


def span(first: int, last: int | None) -> str:
    """Return a range of m: `17–32`, `17` for a single m, `17–` without an end."""
    return str(first) if first == last else f"{first}–{'' if last is None else last}"


def count(number: int, thing: str) -> str:
    """Return `1 row`, `10 rows`."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _json_value(value: object) -> object:
    match value:
        case Problem():
            return value.name
        case Enum():
            return value.value
        case Mapping():
            return {str(key): _json_value(each) for key, each in value.items()}
        case tuple() | list():
            return [_json_value(each) for each in value]
    return value


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
