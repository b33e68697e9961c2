"""Landscapes out of the CSV text that `landscape_file` describes."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.errors import LandscapeError, ProblemError
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.store.landscapes.cells import (
    BUILD_SECONDS,
    COST,
    IDENTITY,
    RESOURCES,
    TIME,
    TIMES,
    file_stem,
    is_param,
    read_count,
    read_seconds,
    read_status,
    read_time,
    read_value,
)

__all__ = ["parse", "seen_param"]

_T = TypeVar("_T")


def parse(file: Path, text: str) -> tuple[Landscape, ...]:
    """Every landscape of the text, in the order of their first rows; `file` names them and the errors.

    Raises:
        LandscapeError: the text breaks the format.
    """
    try:
        reader = csv.reader(io.StringIO(text, newline=""))
        header = _header(file, [name.strip() for name in next(reader, [])])
        rows = [_row(header, reader.line_num, cells) for cells in reader if cells]
    except csv.Error as error:
        raise LandscapeError(f"{file} is not CSV: {error}") from None
    if not rows:
        raise LandscapeError(f"{file} holds no rows; a landscape is a header line and one row a config")
    identity = [c for c in header.names if c in header.problem or c in IDENTITY]
    tasks: dict[tuple[str, ...], list[_Row]] = {}
    for row in rows:
        tasks.setdefault(tuple(row.cells[c] for c in identity), []).append(row)
    return tuple(_landscape(header, task_rows) for task_rows in tasks.values())


@dataclass(frozen=True, slots=True)
class _Header:
    """The file's columns by their role."""

    file: Path
    names: tuple[str, ...]
    problem: tuple[str, ...]
    task: tuple[str, ...]
    params: tuple[str, ...]
    time: str
    times: str | None


@dataclass(frozen=True, slots=True)
class _Row:
    """One line's cells by column; the last line, where a quoted cell spans several."""

    file: Path
    line: int
    cells: Mapping[str, str]

    def error(self, column: str, trouble: str, text: str | None = None) -> LandscapeError:
        value = self.cells[column] if text is None else text
        return LandscapeError(f"{self.file}, line {self.line}, column {column}, value {value!r}: {trouble}")

    def number(self, column: str, read: Callable[[str], _T], expected: str) -> _T:
        try:
            return read(self.cells[column])
        except ValueError:
            raise self.error(column, f"expected {expected}") from None


def _header(file: Path, names: Sequence[str]) -> _Header:
    listed = f"its columns are {', '.join(names) or 'none'}"
    for index, name in enumerate(names):
        if not name:
            raise LandscapeError(f"{file}: column {index + 1} has no name; name or remove it")
        if name in names[:index]:
            raise LandscapeError(f"{file}: two columns are named {name!r}; rename or remove one")
    if "status" not in names:
        raise LandscapeError(f"{file}: no column status (ok, or the reason why not); {listed}")
    params = tuple(filter(is_param, names))
    # A library's landscape is one config without parameters; it says so by naming its space.
    if not params and "task.space" not in names:
        raise LandscapeError(f"{file}: no parameter column; {listed}")
    times = [n for n in names if n in TIME]
    launches = [n for n in names if n in TIMES]
    if not times:
        raise LandscapeError(f"{file}: no column time_us or time_ms; {listed}")
    if len(times) > 1 or len(launches) > 1:
        raise LandscapeError(f"{file}: both {' and '.join(times if len(times) > 1 else launches)} are there; keep one")
    return _Header(
        file=file,
        names=tuple(names),
        problem=tuple(n for n in names if n.startswith("problem.")),
        task=tuple(n for n in names if n.startswith("task.")),
        params=params,
        time=times[0],
        times=launches[0] if launches else None,
    )


def _row(header: _Header, line: int, cells: Sequence[str]) -> _Row:
    if len(cells) != len(header.names):
        found = f"{len(cells)} cells under {len(header.names)} columns"
        raise LandscapeError(f"{header.file}, line {line}: {found}; quote a cell that holds a comma")
    return _Row(header.file, line, dict(zip(header.names, map(str.strip, cells), strict=True)))


def _landscape(header: _Header, rows: Sequence[_Row]) -> Landscape:
    first = rows[0]
    for row in rows:
        for column in header.task:
            if row.cells[column] != first.cells[column]:
                there = f"it is {first.cells[column]!r} on line {first.line}"
                raise row.error(column, f"{there}; a task has one value in all its rows")
    problem, name = _problem(header, first)
    present = tuple(c for c in header.params if any(row.cells[c] for row in rows))
    points: dict[Config, Point] = {}
    lines: dict[Config, int] = {}
    for row in rows:
        point = _point(header, present, row)
        if point.config in lines:
            there = f"{point.config} is on line {lines[point.config]} already"
            raise LandscapeError(f"{header.file}, line {row.line}: {there}; keep one row a config")
        points[point.config] = point
        lines[point.config] = row.line
    return Landscape(
        name=name,
        source=str(header.file),
        params=tuple(seen_param(column, points) for column in present),
        points=points,
        problem=problem,
        context={c.removeprefix("task."): first.cells[c] for c in header.task if first.cells[c]},
    )


def _problem(header: _Header, row: _Row) -> tuple[Problem | None, str]:
    texts = {c.removeprefix("problem."): row.cells[c] for c in header.problem if row.cells[c]}
    if not texts:
        return None, file_stem(header.file)
    try:
        problem = Problem.from_fields(texts)
    except ProblemError:
        sizes = {name: text for name, text in texts.items() if name in ("m", "n", "k")}
        if len(sizes) == 3:
            # Another tool's GEMM may have types and fields we lack, but its sizes are sizes.
            try:
                Problem.from_fields(sizes)
            except ProblemError as error:
                raise LandscapeError(f"{header.file}, line {row.line}: {error}") from None
        return None, ",".join(f"{name}={text}" for name, text in texts.items())
    return problem, problem.name


def _point(header: _Header, present: tuple[str, ...], row: _Row) -> Point:
    for column in present:
        if not row.cells[column]:
            raise row.error(column, "a parameter is blank; fill it, or leave it blank in all rows of the task")
    if not row.cells["status"]:
        raise row.error("status", "expected ok, or the reason why not")
    status, reason = read_status(row.cells["status"])
    time_ns: float | None = None
    samples_ns: tuple[float, ...] = ()
    if status is Status.OK:
        time_ns = row.number(header.time, lambda text: read_time(text, TIME[header.time]), "a time above 0")
        samples_ns = _samples(row, header.times)
    resources = None
    if any(row.cells.get(c) for c in RESOURCES):
        if not all(row.cells.get(c) for c in RESOURCES):
            raise LandscapeError(f"{row.file}, line {row.line}: give all of {', '.join(RESOURCES)}, or none")
        resources = Resources(**{f: row.number(c, read_count, "a whole number") for c, f in RESOURCES.items()})
    build_seconds = None
    if row.cells.get(BUILD_SECONDS):
        build_seconds = row.number(BUILD_SECONDS, read_seconds, "a number of seconds")
    costs = [unit * row.number(c, read_seconds, "a number, 0 or more") for c, unit in COST.items() if row.cells.get(c)]
    config = _config(present, tuple(row.cells[c] for c in present))
    cost_seconds = sum(costs) if costs else None
    return Point(config, status, time_ns, samples_ns, reason, resources, build_seconds, cost_seconds)


@lru_cache(2**14)
def _config(params: tuple[str, ...], texts: tuple[str, ...]) -> Config:
    """The tasks of a file share most of their configs: each is read, and later hashed, once for all of them."""
    return Config({param: read_value(text) for param, text in zip(params, texts, strict=True)})


def _samples(row: _Row, column: str | None) -> tuple[float, ...]:
    if column is None or not row.cells[column]:
        return ()
    samples = []
    for text in row.cells[column].split(";"):
        try:
            samples.append(read_time(text, TIMES[column]))
        except ValueError:
            raise row.error(column, "expected times above 0, joined by ';'", text) from None
    return tuple(samples)


def seen_param(name: str, points: Mapping[Config, Point]) -> Param:
    """The parameter with the values that the points have: in ascending order where all are numbers."""
    seen = {repr(config[name]): config[name] for config in points}.values()  # repr keeps 1 and True apart
    numbers = [value for value in seen if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(seen):
        return Param(name, tuple(sorted(numbers)), ordered=True)
    return Param(name, tuple(seen), ordered=False)
