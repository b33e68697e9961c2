"""Read landscapes from CSV text; `landscape_file` explains the columns."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import TypeVar

from gemmtune.engine.records.artifact import Resources
from gemmtune.engine.records.config import Config, Param, Value
from gemmtune.engine.records.errors import LandscapeError, ProblemError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.kinds import kind_of, workload_of
from gemmtune.engine.store.files import file_stem
from gemmtune.engine.store.landscapes import csv_cells
from gemmtune.engine.store.landscapes.bat_csv import BatColumns
from gemmtune.engine.store.landscapes.csv_cells import BUILD_SECONDS, COST, RESOURCES, TIME, TIMES
from gemmtune.engine.store.landscapes.point_columns import Extras, PointColumns

_NOT_PARAMS = {*TIME, *TIMES, "status", "n_reps", *COST}
_MOST_CHARACTERS = 2**20  # of a line
_NANOSECONDS = {column: partial(csv_cells.nanoseconds, power=power) for column, power in TIME.items()}
_LAUNCHES = {column: partial(csv_cells.launches, power=power) for column, power in TIMES.items()}
_NO_EXTRAS: Extras = ("", None, None, None)
_T = TypeVar("_T")


def parse(
    file: Path, pieces: Iterable[str], problems: Container[Workload | None] | None = None
) -> tuple[Landscape, ...]:
    """Return the landscapes of a text, in the order of their first rows.

    Args:
        file: names the landscapes without a problem, and begins every message.
        pieces: the text, cut anywhere. One piece and its rows are in memory at a time.
        problems: read the rows of these alone, and check no others; None for every row.

    Raises:
        LandscapeError: the text breaks the format.
    """
    try:
        lines = csv.reader(_lines(file, pieces))
        names = [name.strip() for name in next(lines, [])]
        bat = BatColumns(file, names) if BatColumns.are(names) else None
        _check_header(file, bat.names if bat else names)
        rows = _Rows(file, bat.names if bat else names, problems, bat.own_names if bat else {})
        for cells in lines:
            if cells:
                if bat and len(cells) == len(names):
                    cells = bat.row(lines.line_num, cells)  # noqa: PLW2901 (the row under our columns)
                rows.add(lines.line_num, cells)
    except csv.Error as error:
        raise LandscapeError(f"{file} is not CSV: {error}") from None
    if not rows.tasks and problems is None:
        raise LandscapeError(f"{file} holds no rows; a landscape is a header line and one row per config")
    return tuple(map(rows.landscape, filter(None, rows.tasks.values())))


def _lines(file: Path, pieces: Iterable[str]) -> Iterator[str]:
    """Yield the lines of the text with their ends; refuse one that is too long to be a row."""
    number, kept = 0, ""
    for piece in chain(filter(None, pieces), [""]):
        lines = list(StringIO(kept + piece, newline=""))  # ends stay as they are
        kept = lines.pop() if piece else ""  # the next piece may go on with it
        if max(map(len, (*lines, kept))) > _MOST_CHARACTERS:
            position = next(i for i, line in enumerate((*lines, kept), number + 1) if len(line) > _MOST_CHARACTERS)
            raise LandscapeError(f"{file}, line {position} has more than {_MOST_CHARACTERS} characters; is it CSV?")
        number += len(lines)
        yield from lines


def recorded_params(names: Sequence[str], configs: Iterable[Config]) -> tuple[Param, ...]:
    """Return the parameters of these names with every value that the configs have, ordered if all are numbers."""
    columns = dict(zip(sorted(names), zip(*map(Config.values, configs), strict=True), strict=True))
    return tuple(_recorded_param(name, columns[name]) for name in names)


def _recorded_param(name: str, column: Sequence[Value]) -> Param:
    if set(map(type, column)) == {int}:
        return Param(name, tuple(sorted(set(column))), ordered=True)
    values = dict(zip(map(repr, column), column, strict=True)).values()  # repr keeps 1 and True apart
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    if len(numbers) == len(values):
        return Param(name, tuple(sorted(numbers)), ordered=True)
    return Param(name, tuple(values), ordered=False)


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
    for kind in (TIME, TIMES):
        found = [name for name in names if name in kind]
        if len(found) > 1:
            raise LandscapeError(f"{file}: both {' and '.join(found)} are there; keep one")
        if kind is TIME and not found:
            raise LandscapeError(f"{file}: no column time_us or time_ms; {listed}")


def _is_param(column: str) -> bool:
    return column not in _NOT_PARAMS and "." not in column


@dataclass(frozen=True, slots=True)
class _Task:
    """Rows of one task so far."""

    line: int  # of the first row; the last one where a quoted cell spans several
    problem: Mapping[str, str]
    facts: Mapping[str, str]
    params: Sequence[str]
    points: PointColumns = field(default_factory=PointColumns)
    lines: array[int] = field(default_factory=lambda: array("q"))


class _Rows:
    """Adds the rows of one file to their tasks."""

    def __init__(
        self,
        file: Path,
        names: Sequence[str],
        problems: Container[Workload | None] | None,
        own_names: Mapping[str, str],  # the file's, where a column has another
    ) -> None:
        self.tasks: dict[tuple[object, ...], _Task | None] = {}  # None for one that nobody asked for
        self._file, self._names, self._problems, self._own_names = file, names, problems, own_names
        self._problem = [name for name in names if name.startswith("problem.")]
        self._facts = [name for name in names if name.startswith("task.")]
        self._params = [name for name in names if _is_param(name)]
        [self._time] = [name for name in names if name in TIME]
        self._times = next((name for name in names if name in TIMES), "")
        self._configs: dict[Sequence[str], tuple[Sequence[str], Config]] = {}  # by cells; tasks share most of them
        self._resources: dict[Sequence[str | None], Resources] = {}  # by cells; many configs share them
        self._heads = [names.index(name) for name in (*self._problem, *self._facts)]
        self._has_resources = any(column in names for column in RESOURCES)
        self._costs = [(column, unit) for column, unit in COST.items() if column in names]
        self._head: Sequence[str] | None = None  # cells of problem and task in the last row
        self._task: _Task | None = None  # of the last row

    def add(self, line: int, cells: Sequence[str]) -> None:
        """Add a row to its task."""
        if len(cells) != len(self._names):
            found = f"{len(cells)} cells under {len(self._names)} columns"
            raise LandscapeError(f"{self._file}, line {line}: {found}; quote a cell that holds a comma")
        if (head := [cells[place] for place in self._heads]) != self._head:
            self._head, self._task = head, self._task_of(line, self._row(cells))
        if (task := self._task) is None:
            return
        row = self._row(cells)
        params, config = self._config_of(row)
        if params != task.params:
            blank = next(name for name in self._params if (name in params) != (name in task.params))
            way_out = "a parameter is blank; fill it, or leave it blank in all rows of the task"
            raise self._error(task.line if blank in params else line, blank, "", way_out)
        position = len(task.lines)
        if (first := task.points.positions.setdefault(config, position)) != position:
            before = f"{config} is on line {task.lines[first]} already"
            raise LandscapeError(f"{self._file}, line {line}: {before}; keep one row per config")
        task.lines.append(line)
        self._add_outcome(task.points, line, row)

    def _row(self, cells: Sequence[str]) -> dict[str, str]:
        return dict(zip(self._names, map(str.strip, cells), strict=True))

    def _config_of(self, row: Mapping[str, str]) -> tuple[Sequence[str], Config]:
        """Return the names of a row's parameters that are not blank, and their config."""
        texts = tuple(map(row.__getitem__, self._params))
        if texts not in self._configs:
            filled = {name: csv_cells.value(text) for name, text in zip(self._params, texts, strict=True) if text}
            self._configs[texts] = tuple(filled), Config(filled)
        return self._configs[texts]

    def _task_of(self, line: int, row: Mapping[str, str]) -> _Task | None:
        """Return the task of a row, a new one if it is the first; None if nobody asked for its problem."""
        problem = {name.removeprefix("problem."): row[name] for name in self._problem if row[name]}
        facts = {name: row[name] for name in self._facts}
        identity = *problem.items(), facts.get("task.space", ""), facts.get("task.device", "")
        if identity not in self.tasks:
            is_asked = self._problems is None or _problem(self._file, line, problem)[0] in self._problems
            self.tasks[identity] = _Task(line, problem, facts, self._config_of(row)[0]) if is_asked else None
        if (task := self.tasks[identity]) is None:
            return None
        for fact, before in task.facts.items():
            if before != facts[fact]:
                other = f"it is {before!r} on line {task.line}; a task has one value in all its rows"
                raise self._error(line, fact, facts[fact], other)
        return task

    def landscape(self, task: _Task) -> Landscape:
        """Return the landscape of a task whose rows are complete."""
        problem, name = _problem(self._file, task.line, task.problem)
        context = {fact.removeprefix("task."): text for fact, text in task.facts.items() if text}
        params = recorded_params(task.params, task.points)
        return Landscape(name, str(self._file), params, task.points, problem, context)

    def _add_outcome(self, points: PointColumns, line: int, row: Mapping[str, str]) -> None:
        """Add status, time, launches and further facts of a row to the columns."""
        if not (word := row["status"]):
            raise self._error(line, "status", word, "expected ok, or the reason why not")
        status, reason = (Status.OK, "") if word == "ok" else csv_cells.read_status(word)
        time_ns = 0.0
        if status is Status.OK:
            time_ns = self._read(line, row, self._time, _NANOSECONDS[self._time], "a time above 0")
            if self._times and row[self._times]:
                samples = self._read(line, row, self._times, _LAUNCHES[self._times], "times above 0, joined by ';'")
                points.samples_ns.extend(samples)
        extras = self._extras(line, reason, row)
        if extras != _NO_EXTRAS:
            points.extras[len(points.ends)] = extras
        points.statuses.append(status)
        points.times_ns.append(time_ns)
        points.ends.append(len(points.samples_ns))

    def _extras(self, line: int, reason: str, row: Mapping[str, str]) -> Extras:
        resources = build_seconds = None
        counts = tuple(map(row.get, RESOURCES)) if self._has_resources else ()
        if any(counts) and (resources := self._resources.get(counts)) is None:
            resources = self._resources[counts] = self._read_resources(line, row)
        if row.get(BUILD_SECONDS):
            build_seconds = self._read(line, row, BUILD_SECONDS, csv_cells.duration, "a number of seconds")
        costs = [
            unit * self._read(line, row, column, csv_cells.duration, "a number, 0 or more")
            for column, unit in self._costs
            if row[column]
        ]
        return reason, resources, build_seconds, sum(costs) if costs else None

    def _read_resources(self, line: int, row: Mapping[str, str]) -> Resources:
        if not all(map(row.get, RESOURCES)):
            raise LandscapeError(f"{self._file}, line {line}: give all of {', '.join(RESOURCES)}, or none")
        read = {
            its: self._read(line, row, column, csv_cells.whole_number, "a whole number")
            for column, its in RESOURCES.items()
        }
        return Resources(**read)

    def _read(
        self, line: int, row: Mapping[str, str], column: str, read_cell: Callable[[str], _T], expected: str
    ) -> _T:
        try:
            return read_cell(row[column])
        except ValueError as error:  # its message is the text that is wrong
            raise self._error(line, column, str(error), f"expected {expected}") from None

    def _error(self, line: int, column: str, text: str, message: str) -> LandscapeError:
        column = self._own_names.get(column, column)
        return LandscapeError(f"{self._file}, line {line}, column {column}, value {text!r}: {message}")


def _problem(file: Path, line: int, texts: Mapping[str, str]) -> tuple[Workload | None, str]:
    if not texts:
        return None, file_stem(file)
    try:
        problem = workload_of(texts)
    except ProblemError:
        needed = kind_of(texts.get("kind", "gemm")).needed
        sizes = {name: text for name, text in texts.items() if name in (*needed, "kind")}
        if set(needed) <= set(sizes):  # a GEMM of another tool may have types we lack, but its sizes must be sizes
            try:
                workload_of(sizes)
            except ProblemError as error:
                raise LandscapeError(f"{file}, line {line}: {error}") from None
        return None, ",".join(f"{name}={text}" for name, text in texts.items())
    return problem, problem.name
