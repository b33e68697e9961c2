"""Read landscapes from CSV text; `landscape_file` explains the columns."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.io.numbers import MOST_INTEGER, parse_number
from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.errors import LandscapeError, ProblemError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of, workload_of
from gemmtune.engine.store.files import file_stem

__all__ = [
    "BUILD_SECONDS",
    "COST_SECONDS",
    "LEAST_NS",
    "MOST_NS",
    "RESOURCES",
    "parse",
    "read_status",
    "recorded_param",
]

RESOURCES = {f"build.{field.name}": field.name for field in fields(Resources)}
"""Columns of the resources that a block occupies, each with its field of `Resources`."""
BUILD_SECONDS = "build.seconds"
"""Column of the build time, in seconds."""
LEAST_NS, MOST_NS = 1e-6, 1e18
"""Shortest and longest believable time, in nanoseconds; the longest is about thirty years."""
COST_SECONDS = "cost.seconds"
"""Column of the total cost of an evaluation, in seconds."""

_TIME = {"time_us": 3, "time_ms": 6}  # columns, each with the power of ten that converts it to nanoseconds
_TIMES = {"times_us": 3, "times_ms": 6}
_COST = {COST_SECONDS: 1.0, "compile_ms": 1e-3, "bench_ms": 1e-3, "framework_ms": 1e-3}  # columns and their units
_NOT_PARAMS = {*_TIME, *_TIMES, "status", "n_reps", *_COST}
_FOREIGN_STATUS = {
    # recorded landscapes of AutoTuningAssociation/benchmark_hub
    "compile_error": Status.BUILD_FAILED,
    "runtime_error": Status.RUN_FAILED,
    # `invalidity` of the T4 results schema
    "correct": Status.OK,
    "constraints": Status.INVALID,
    "compile": Status.BUILD_FAILED,
    "runtime": Status.RUN_FAILED,
    "correctness": Status.WRONG_RESULT,
    "timeout": Status.TIMED_OUT,
    # Kernel Tuner's error classes
    "invalidconfig": Status.INVALID,
    "compilationfailedconfig": Status.BUILD_FAILED,
    "runtimefailedconfig": Status.RUN_FAILED,
}
_PLAIN_TIMES = re.compile(r"\d{1,15}(\.\d{1,15})?(;\d{1,15}(\.\d{1,15})?)*", re.ASCII)
_LINE = re.compile(r"[^\r\n]*(?:\r\n?|\n)|[^\r\n]+")
_MOST_CHARACTERS = 2**20  # of a line
_T = TypeVar("_T")


def parse(file: Path, text: str) -> tuple[Landscape, ...]:
    """Return every landscape of the text, in the order of their first rows; `file` names them and the errors.

    Raises:
        LandscapeError: the text breaks the format.
    """
    try:
        lines = csv.reader(_lines(file, text))
        names = [name.strip() for name in next(lines, [])]
        _check_header(file, names)
        tasks = _rows_by_task(file, names, ((lines.line_num, cells) for cells in lines if cells))
    except csv.Error as error:
        raise LandscapeError(f"{file} is not CSV: {error}") from None
    if not tasks:
        raise LandscapeError(f"{file} holds no rows; a landscape is a header line and one row per config")
    # The rows of a task are dropped once they are read: as mappings, all of them take more memory than the landscapes.
    return tuple(
        _landscape(names, [_Row(file, line, dict(zip(names, cells, strict=True))) for line, cells in tasks.pop(key)])
        for key in list(tasks)
    )


def _rows_by_task(
    file: Path, names: Sequence[str], rows: Iterable[tuple[int, Sequence[str]]]
) -> dict[tuple[str, ...], list[tuple[int, Sequence[str]]]]:
    """Return the cells of each row with its line, by the cells that name the row's task."""
    identity = [
        i for i, name in enumerate(names) if name.startswith("problem.") or name in ("task.space", "task.device")
    ]
    tasks: dict[tuple[str, ...], list[tuple[int, Sequence[str]]]] = {}
    above: Sequence[str] = names
    for line, cells in rows:
        if len(cells) != len(names):
            found = f"{len(cells)} cells under {len(names)} columns"
            raise LandscapeError(f"{file}, line {line}: {found}; quote a cell that holds a comma")
        # Most cells equal the one above; both are one object.
        above = tuple(old if old == new else new for old, new in zip(above, map(str.strip, cells), strict=True))
        tasks.setdefault(tuple(above[i] for i in identity), []).append((line, above))
    return tasks


def _lines(file: Path, text: str) -> Iterator[str]:
    """Yield the lines of the text with their ends; refuse one that is too long to be a row."""
    for number, line in enumerate(_LINE.finditer(text), 1):
        if line.end() - line.start() > _MOST_CHARACTERS:
            raise LandscapeError(f"{file}, line {number} has more than {_MOST_CHARACTERS} characters; is it CSV?")
        yield line[0]


def read_status(text: str) -> tuple[Status, str]:
    """Return status and reason; an unknown word means a failed run, with the word as its reason."""
    head, _, reason = text.partition(":")
    word = head.strip().lower()
    try:
        status = Status(word)
    except ValueError:
        status, reason = _FOREIGN_STATUS.get(word, Status.RUN_FAILED), text
    return status, "" if status is Status.OK else reason.strip()


def recorded_param(name: str, configs: Iterable[Config]) -> Param:
    """Return the parameter with every value that the configs have; it is ordered if all values are numbers."""
    values = {repr(config[name]): config[name] for config in configs}.values()  # repr keeps 1 and True apart
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return Param(name, tuple(sorted(numbers)), ordered=True)
    return Param(name, tuple(values), ordered=False)


@dataclass(frozen=True, slots=True)
class _Row:
    """Cells of one line by column; `line` is the last one where a quoted cell spans several."""

    file: Path
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, message: str, text: str | None = None) -> LandscapeError:
        value = self.cells[column] if text is None else text
        return LandscapeError(f"{self.file}, line {self.line}, column {column}, value {value!r}: {message}")

    def read(self, column: str, read_cell: Callable[[str], _T], expected: str) -> _T:
        try:
            return read_cell(self.cells[column])
        except ValueError:
            raise self.error(column, f"expected {expected}") from None


def _check_header(file: Path, names: Sequence[str]) -> None:
    listed = f"its columns are {', '.join(names) or 'none'}"
    for index, name in enumerate(names):
        if not name:
            raise LandscapeError(f"{file}: column {index + 1} has no name; name or remove it")
        if name in names[:index]:
            raise LandscapeError(f"{file}: two columns are named {name!r}; rename or remove one")
    if "status" not in names:
        raise LandscapeError(f"{file}: no column status (ok, or the reason why not); {listed}")
    if "task.space" not in names and not any(map(_is_param, names)):  # a vendor library has one config, no parameter
        raise LandscapeError(f"{file}: no parameter column, and no task.space; give one of them; {listed}")
    for kind in (_TIME, _TIMES):
        found = [name for name in names if name in kind]
        if len(found) > 1:
            raise LandscapeError(f"{file}: both {' and '.join(found)} are there; keep one")
        if kind is _TIME and not found:
            raise LandscapeError(f"{file}: no column time_us or time_ms; {listed}")


def _is_param(column: str) -> bool:
    return column not in _NOT_PARAMS and "." not in column


def _landscape(names: Sequence[str], rows: Sequence[_Row]) -> Landscape:
    first = rows[0]
    facts = [name for name in names if name.startswith("task.")]
    params = tuple(name for name in names if _is_param(name) and any(row.cells[name] for row in rows))
    points: dict[Config, Point] = {}
    lines: dict[Config, int] = {}
    for row in rows:
        for name in facts:
            if row.cells[name] != first.cells[name]:
                before = f"it is {first.cells[name]!r} on line {first.line}"
                raise row.error(name, f"{before}; a task has one value in all its rows")
        point = _point(params, row)
        if point.config in lines:
            before = f"{point.config} is on line {lines[point.config]} already"
            raise LandscapeError(f"{row.file}, line {row.line}: {before}; keep one row per config")
        points[point.config], lines[point.config] = point, row.line
    problem, name = _problem(first)
    context = {fact.removeprefix("task."): first.cells[fact] for fact in facts if first.cells[fact]}
    recorded = tuple(recorded_param(param, points) for param in params)
    return Landscape(name, str(first.file), recorded, points, problem, context)


def _problem(row: _Row) -> tuple[Workload | None, str]:
    cells = {name: text for name, text in row.cells.items() if name.startswith("problem.") and text}
    texts = {name.removeprefix("problem."): text for name, text in cells.items()}
    if not texts:
        return None, file_stem(row.file)
    try:
        problem = workload_of(texts)
    except ProblemError:
        needed = kind_of(texts.get("kind", "gemm")).needed
        sizes = {name: text for name, text in texts.items() if name in (*needed, "kind")}
        if set(needed) <= set(sizes):  # a GEMM of another tool may have types we lack, but its sizes must be sizes
            try:
                workload_of(sizes)
            except ProblemError as error:
                raise LandscapeError(f"{row.file}, line {row.line}: {error}") from None
        return None, ",".join(f"{name}={text}" for name, text in texts.items())
    return problem, problem.name


def _point(params: tuple[str, ...], row: _Row) -> Point:
    cells = row.cells
    for param in params:
        if not cells[param]:
            raise row.error(param, "a parameter is blank; fill it, or leave it blank in all rows of the task")
    if not cells["status"]:
        raise row.error("status", "expected ok, or the reason why not")
    status, reason = read_status(cells["status"])
    time_ns, samples_ns = _times(row) if status is Status.OK else (None, ())
    resources = build_seconds = None
    if any(cells.get(column) for column in RESOURCES):
        if not all(cells.get(column) for column in RESOURCES):
            raise LandscapeError(f"{row.file}, line {row.line}: give all of {', '.join(RESOURCES)}, or none")
        resources = Resources(**{f: row.read(c, _whole_number, "a whole number") for c, f in RESOURCES.items()})
    if cells.get(BUILD_SECONDS):
        build_seconds = row.read(BUILD_SECONDS, _duration, "a number of seconds")
    costs = [unit * row.read(c, _duration, "a number, 0 or more") for c, unit in _COST.items() if cells.get(c)]
    config = _config(params, tuple(cells[param] for param in params))
    return Point(config, status, time_ns, samples_ns, reason, resources, build_seconds, sum(costs) if costs else None)


def _times(row: _Row) -> tuple[float, tuple[float, ...]]:
    """Return the recorded time and the single launches, in nanoseconds."""
    [(column, power)] = [(name, power) for name, power in _TIME.items() if name in row.cells]
    time_ns = row.read(column, lambda text: _nanoseconds(text, power), "a time above 0")
    samples_ns = []
    for times_column, times_power in _TIMES.items():
        cell = row.cells.get(times_column, "")
        if _PLAIN_TIMES.fullmatch(cell):  # nearly all cells; the launches of a file are most of its numbers
            plain = [float(f"{text}e{times_power}") for text in cell.split(";")]
            if min(plain) >= LEAST_NS and max(plain) <= MOST_NS:
                samples_ns += plain
                continue
        for text in filter(None, cell.split(";")):
            try:
                samples_ns.append(_nanoseconds(text, times_power))
            except ValueError:
                raise row.error(times_column, "expected times above 0, joined by ';'", text) from None
    return time_ns, tuple(samples_ns)


def _nanoseconds(text: str, power: int) -> float:
    try:
        nanoseconds = parse_number(f"{text}e{power}")  # text as a float × 1000 would round: times must read back equal
    except ValueError:
        nanoseconds = parse_number(text) * 10**power  # the text has an exponent, or is no number
    if not LEAST_NS <= nanoseconds <= MOST_NS:
        raise ValueError(text)
    return float(nanoseconds)


def _whole_number(text: str) -> int:
    number = parse_number(text)
    if not isinstance(number, int) or not 0 <= number <= MOST_INTEGER:
        raise ValueError(text)
    return number


def _duration(text: str) -> float:
    seconds = parse_number(text)
    if not 0 <= seconds <= MOST_NS / 1e9:
        raise ValueError(text)
    return float(seconds)


@lru_cache(2**14)
def _config(params: tuple[str, ...], texts: tuple[str, ...]) -> Config:
    """Return one Config object for equal cells: the tasks of a file share most configs, and so their hashes."""
    return Config({param: _value(text) for param, text in zip(params, texts, strict=True)})


def _value(text: str) -> Value:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return parse_number(text)
    except ValueError:
        return text
