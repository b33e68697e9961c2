"""Parts that every report is made of: text tables, readable numbers and JSON values."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import cache
from itertools import chain
from textwrap import wrap

from gemmtune.engine.io.printing import visible
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import GemmtuneError, UnknownDefinition, UsageError, did_you_mean
from gemmtune.engine.records.table import Choice
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Space

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
        """Return the table in at most `width` columns.

        A table that is too wide puts its last column, if it is text, below each row; then its first above each row;
        and at last each row as names and values.
        """
        rows = list(zip(*self.columns.values(), strict=True))
        headers = list(self.columns)
        lines = _lines(headers, rows, self.left)
        if width is None or _fits(lines, width):
            return "\n".join(lines)
        below: list[list[str]] = [[] for _ in rows]
        if headers[-1] in self.left and len(headers) > 1:
            below = [_wrapped(row[-1], width, "    ") for row in rows]
            headers, rows = headers[:-1], [row[:-1] for row in rows]
            lines = _lines(headers, rows, self.left)
            if _fits(lines, width):
                return _with_parts(lines, [[] for _ in rows], below)
        above = [_wrapped(row[0], width, "") for row in rows]
        lines = [f"  {line}" for line in _lines(headers[1:], [row[1:] for row in rows], self.left)]
        if len(headers) > 1 and _fits(lines, width):
            return "\n".join([headers[0], _with_parts(lines, above, below)])
        pairs = [[f"{name} {cell}" for name, cell in zip(headers[1:], row[1:], strict=True) if cell] for row in rows]
        records = [
            [*first, *_packed(named, width), *last] for first, named, last in zip(above, pairs, below, strict=True)
        ]
        return "\n".join(chain.from_iterable(records))

    def arranged(self, header: str | None, contains: str) -> Grid:
        """Return the rows that have a text, sorted by a column if the table has it."""
        rows = [row for row in zip(*self.columns.values(), strict=True) if contains.lower() in "\n".join(row).lower()]
        if header is not None and header in self.columns:
            position = list(self.columns).index(header)
            rows.sort(key=lambda row: natural(row[position]))
        return Grid.of_rows(list(self.columns), rows, self.left)

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
        return visible("\n\n".join(_section_text(each, width) for each in self.sections))

    def arranged(self, sort: str | None, contains: str) -> Report:
        """Return the report with the lines of its tables sorted by a column, and without those that lack a text.

        Args:
            sort: header of a column, or a word of it; numbers are sorted as numbers. None keeps the order.
            contains: text that a line needs to stay, in any case; empty keeps all.

        Raises:
            UsageError: no table has that column.
        """
        grids = [each for each in self.sections if isinstance(each, Grid)]
        known = list(dict.fromkeys(name for grid in grids for name in grid.columns))
        wanted = (sort or "").replace("us", "µs") if sort not in known else sort
        header = next((name for name in known if wanted == name), None)
        header = header or next((name for name in known if wanted in name.split()), None)
        if sort is not None and header is None:
            raise UsageError(f"no column {sort!r}; {did_you_mean(sort, known)}known: {', '.join(known) or 'none'}")
        sections = [each.arranged(header, contains) if isinstance(each, Grid) else each for each in self.sections]
        return Report(self.record, sections)

    def to_csv(self) -> str:
        """Return the first table as CSV (RFC 4180): its headers, and a line per row, each cell as it is shown.

        Raises:
            UsageError: there is no table.
        """
        grid = next((each for each in self.sections if isinstance(each, Grid)), None)
        if grid is None:
            raise UsageError("there is no table of which CSV could be made; --json prints all that there is")
        lines = csv.writer(out := io.StringIO(), lineterminator="\n")
        lines.writerows([list(grid.columns), *zip(*grid.columns.values(), strict=True)])
        return visible(out.getvalue().removesuffix("\n"))

    def to_json(self) -> dict[str, object]:
        """Return the object for programs as JSON values."""
        return {name: json_value(value) for name, value in self.record.items()}


def natural(text: str) -> tuple[object, ...]:
    """Return a key that sorts numbers in texts as numbers, with 2048x4096 after 16x4096 and a dash last."""
    if text == "-":
        return ((2,),)
    whole = re.match(r"[+-]?\d+(?:\.\d+)?(?=[ %×s–]|$)", text.removeprefix("≤ "))
    if whole is not None:
        return ((0, float(whole[0])), (1, text))
    parts = re.split(r"(\d+(?:\.\d+)?)", text)
    return tuple((0, float(part)) if number % 2 else (1, part) for number, part in enumerate(parts) if part)


def json_fields(record: object, *names: str) -> dict[str, object]:
    """Return attributes of a record by name."""
    return {name: getattr(record, name) for name in names}


def config_text(task: Task, config: Config | None) -> str:
    """Return `BLOCK_M=128 BLOCK_N=64 …`, in the order of the space's params if they are known; a dash for None."""
    if config is None:
        return "-"
    order = _param_names(task)
    names = [*(name for name in order if name in config), *(name for name in config if name not in order)]
    return " ".join(f"{name}={config[name]}" for name in names)


def choice_text(device: Device, problem: Workload, choice: Choice) -> str:
    """Return the config of a choice in a table of this device as text."""
    return config_text(Task(problem, device, choice.space), choice.config)


def params_text(params: Mapping[str, object]) -> str:
    """Return the params of a config as text, those with parts of their own as JSON; `-` without any."""
    parts = {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in params.items()}
    return " ".join(f"{name}={value}" for name, value in parts.items()) or "-"


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


def lead_text(lead: float | None) -> str:
    """Return a lead over the baseline as `+25.0%`, or `-7.0%` for a kernel that is slower; a dash for None."""
    return "-" if lead is None else f"{lead:+.1%}"


def lead_of(baseline: float | None, best: float | None) -> float | None:
    """Return the baseline's score over the best, minus 1; None if either is missing."""
    return None if best is None or baseline is None else baseline / best - 1


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


def doubted(boards: Iterable[BoardVerdict]) -> list[str]:
    """Return a line per board that is off or quarantined."""
    return [f"board {each.board} is {each.trust}: {each.reason}" for each in boards if each.trust is not Trust.SEEN]


def tally(numbers: Mapping[str, int]) -> str:
    """Return `3 build_failed, 1 timed_out`; empty without numbers."""
    return ", ".join(f"{number} {name}" for name, number in numbers.items())


def json_value(value: object) -> object:
    """Return a value as `json.dumps` takes it: a problem by name, an enum by value, records and containers by parts."""
    match value:
        case Workload():
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


def _section_text(section: str | Grid, width: int | None) -> str:
    if isinstance(section, Grid):
        return section.to_text(width)
    if width is None or _fits(section.split("\n"), width):
        return section
    lines = section.split("\n")
    indented = ((line, " " * (len(line) - len(line.lstrip()))) for line in lines)
    return "\n".join(chain.from_iterable(_wrapped(line, width, indent) for line, indent in indented))


def _fits(lines: Iterable[str], width: int) -> bool:
    return max(map(len, lines), default=0) <= width


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    """Return a text in lines of at most `width` columns, cut at spaces; a longer word, such as a path, stays whole."""
    options = {"initial_indent": indent, "subsequent_indent": indent}
    return wrap(text.strip(), width, **options, break_long_words=False, break_on_hyphens=False)  # type: ignore[arg-type]


def _packed(texts: Iterable[str], width: int) -> list[str]:
    """Return texts in lines of at most `width` columns, as many per line as fit."""
    lines: list[str] = []
    for text in texts:
        if lines and len(lines[-1]) + len(_GAP) + len(text) <= width:
            lines[-1] += _GAP + text
        else:
            lines += _wrapped(text, width, "  ")
    return lines


def _with_parts(lines: Sequence[str], above: Iterable[list[str]], below: Iterable[list[str]]) -> str:
    """Return a table's head, and its rows each between lines of their own."""
    head, rule, *body = lines
    rows = ([*over, line, *under] for over, line, under in zip(above, body, below, strict=True))
    return "\n".join([head, rule, *chain.from_iterable(rows)])


def _lines(headers: Sequence[str], rows: Sequence[Sequence[str]], left: Sequence[str]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(headers, *rows, strict=True)]
    aligns = ["<" if header in left else ">" for header in headers]
    rule = ["─" * width for width in widths]
    lines = []
    for row in (headers, rule, *rows):
        cells = (f"{cell:{align}{width}}" for cell, align, width in zip(row, aligns, widths, strict=True))
        lines.append(_GAP.join(cells).rstrip())
    return lines


def _param_names(task: Task) -> list[str]:
    """Return the names of the space's params; none if it is not installed, or the user's code was not read."""
    with suppress(UnknownDefinition):
        return [param.name for param in space.params(task)] if (space := _space(task.space)) else []
    return []


@cache
def _space(name: str) -> Space | None:
    try:
        return registry.space(name)
    except GemmtuneError:
        return None
