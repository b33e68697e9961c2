"""Parts that every report is made of: text tables, readable numbers and JSON values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain

from gemmtune.engine.io.printing import visible
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space

__all__ = [
    "Grid",
    "Report",
    "bound",
    "choice_text",
    "config_text",
    "count",
    "json_fields",
    "json_value",
    "left_out",
    "microseconds",
    "readable",
    "readable_unit",
    "span",
    "speedup",
    "tally",
]

_GAP = "  "
_READABLE = {"ns": ("µs", 1e3, 1), "J": ("mJ", 1e-3, 2)}  # unit: the one printed, its size, its decimals


@dataclass(frozen=True, slots=True)
class Grid:
    """Table of text in a report."""

    columns: Mapping[str, Sequence[str]]
    """Cells of each column, by header."""
    left: Sequence[str] = ()
    """Headers of the columns that are left-aligned."""

    def to_text(self, width: int | None = None) -> str:
        """Return the table; if it exceeds `width` columns, the last cell of each row goes on a line of its own."""
        headers, rows = list(self.columns), list(zip(*self.columns.values(), strict=True))
        lines = _lines(headers, rows, self.left)
        if width is None or max(map(len, lines)) <= width:
            return "\n".join(lines)
        head, rule, *body = _lines(headers[:-1], [row[:-1] for row in rows], self.left)
        below = [[f"    {row[-1]}"] if row[-1] else [] for row in rows]
        return "\n".join(
            [head, rule, *chain.from_iterable((line, *more) for line, more in zip(body, below, strict=True))]
        )

    @classmethod
    def of_rows(cls, headers: Sequence[str], rows: Iterable[Sequence[str]], left: Sequence[str] = ()) -> Grid:
        """Return the grid of these rows, each with a cell per header."""
        rows = list(rows)
        return cls({header: [row[number] for row in rows] for number, header in enumerate(headers)}, left)


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a command, built once and printed as text or as JSON."""

    record: Mapping[str, object]
    """Object for programs: names and values, records, enums, and containers of them."""
    sections: Sequence[str | Grid]
    """Texts and tables for a person."""

    def to_text(self, width: int | None = None) -> str:
        """Return the sections with a blank line between; wide tables are wrapped to `width` columns."""
        return visible("\n\n".join(each if isinstance(each, str) else each.to_text(width) for each in self.sections))

    def to_json(self) -> dict[str, object]:
        """Return the object for programs as JSON values."""
        return {name: json_value(value) for name, value in self.record.items()}


def json_fields(record: object, *names: str) -> dict[str, object]:
    """Return attributes of a record by name."""
    return {name: getattr(record, name) for name in names}


def config_text(task: Task, config: Config | None) -> str:
    """Return `BLOCK_M=128 BLOCK_N=64 …`, in the order of the space's params if it is installed; a dash for None."""
    if config is None:
        return "-"
    space = _space(task.space)
    order = [param.name for param in space.params(task)] if space else []
    names = [*(name for name in order if name in config), *(name for name in config if name not in order)]
    return " ".join(f"{name}={config[name]}" for name in names)


def choice_text(device: Device, problem: Problem, choice: Choice) -> str:
    """Return the config of a choice in a table of this device as text."""
    return config_text(Task(problem, device, choice.space), choice.config)


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


def left_out(damaged: int) -> list[str]:
    """Return the line that says how many damaged rows of a database were left out; nothing for none."""
    return [f"{count(damaged, 'damaged row')} {'was' if damaged == 1 else 'were'} left out"] if damaged else []


def tally(numbers: Mapping[str, int]) -> str:
    """Return `3 build_failed, 1 timed_out`; empty without numbers."""
    return ", ".join(f"{number} {name}" for name, number in numbers.items())


def json_value(value: object) -> object:
    """Return a value as `json.dumps` takes it: a problem by name, an enum by value, records and containers by parts."""
    match value:
        case Problem():
            return value.name
        case Enum():
            return value.value
        case Mapping():
            return {str(key): json_value(each) for key, each in value.items()}
        case tuple() | list():
            return [json_value(each) for each in value]
    if is_dataclass(value):
        return {field.name: json_value(getattr(value, field.name)) for field in fields(value)}
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
