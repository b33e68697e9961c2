"""Read landscapes from CSV text; `landscape_file` explains the columns."""

from __future__ import annotations

import csv
from array import array
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import StringIO
from itertools import accumulate, chain, islice
from operator import itemgetter
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
from gemmtune.engine.store.landscapes.csv_cells import BUILD_SECONDS, COST, RESOURCES, TIME, TIMES
from gemmtune.engine.store.landscapes.point_columns import Extras, PointColumns

_NOT_PARAMS = {*TIME, *TIMES, "status", "n_reps", *COST}
_MOST_CHARACTERS = 2**20  # of a line
_NANOSECONDS = {column: partial(csv_cells.nanoseconds, power=power) for column, power in TIME.items()}
_READ_TOGETHER = 512  # rows whose times are read together
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
        _check_header(file, names)
        rows = _Rows(file, names, problems)
        for cells in lines:
            if cells:
                rows.add(lines.line_num, cells)
        rows.complete()
    except csv.Error as error:
        raise LandscapeError(f"{file} is not CSV: {error}") from None
    if not rows.tasks and problems is None:
        raise LandscapeError(f"{file} holds no rows; a landscape is a header line and one row per config")
    return tuple(map(rows.landscape, rows.tasks.values()))


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
    facts: Sequence[str]
    params: Sequence[str]
    points: PointColumns = field(default_factory=PointColumns)
    lines: array[int] = field(default_factory=lambda: array("q"))
    unread: list[tuple[Sequence[str], Sequence[str]]] = field(default_factory=list)
    """Outcome and further cells of the last rows, which are read together."""


class _Rows:
    """Adds the rows of one file to their tasks."""

    def __init__(self, file: Path, names: Sequence[str], problems: Container[Workload | None] | None) -> None:
        self.tasks: dict[Sequence[str], _Task] = {}
        self._problems = problems
        self._asked: dict[Sequence[str], bool] = {}  # by cells of a problem
        self._file = file
        self._number_of_columns = len(names)
        self._problem = [name for name in names if name.startswith("problem.")]
        self._facts = [name for name in names if name.startswith("task.")]
        self._params = [name for name in names if _is_param(name)]
        self._further = [name for name in names if name in (*RESOURCES, BUILD_SECONDS, *COST)]
        [self._time] = [name for name in names if name in TIME]
        self._times = next((name for name in names if name in TIMES), "")
        self._identity = [*self._problem, *(name for name in ("task.space", "task.device") if name in names)]
        self._task_of, self._problem_of, self._facts_of, self._texts_of, self._further_of = (
            _picker([names.index(name) for name in chosen])
            for chosen in ([*self._identity, *self._facts], self._problem, self._facts, self._params, self._further)
        )
        self._outcome_of = _picker([names.index(name) for name in ("status", self._time, self._times) if name])
        self._configs: dict[Sequence[str], tuple[Sequence[str], Config]] = {}  # by cells; tasks share most of them
        self._filled: dict[Sequence[str], Sequence[str]] = {}  # names of parameters, each list of them once
        self._last: tuple[Sequence[str], _Task] | None = None  # cells and task of the last row
        self._resources: dict[Sequence[str | None], Resources] = {}  # by cells; many configs share them

    def add(self, line: int, cells: Sequence[str]) -> None:
        """Add a row to its task."""
        if len(cells) != self._number_of_columns:
            found = f"{len(cells)} cells under {self._number_of_columns} columns"
            raise LandscapeError(f"{self._file}, line {line}: {found}; quote a cell that holds a comma")
        if not self._is_asked(line, cells):
            return
        texts, of_task = self._texts_of(cells), self._task_of(cells)
        if (known := self._configs.get(texts)) is None:
            params, config = _config(self._params, _stripped(texts))
            known = self._configs[texts] = self._filled.setdefault(params, params), config
        params, config = known
        if self._last is None or of_task != self._last[0]:  # comparing texts takes less time than hashing them
            self.complete()
            identity = _stripped(of_task)[: len(self._identity)]
            self._last = of_task, self.tasks.get(identity) or self._new_task(identity, line, cells, params)
        _, task = self._last
        if task.params is not params or not task.unread:
            facts = _stripped(self._facts_of(cells))
            if task.facts != facts or task.params != params:
                raise self._differing(task, line, facts, params)
        position = len(task.lines)
        if (first := task.points.positions.setdefault(config, position)) != position:
            before = f"{config} is on line {task.lines[first]} already"
            raise LandscapeError(f"{self._file}, line {line}: {before}; keep one row per config")
        task.lines.append(line)
        task.unread.append((self._outcome_of(cells), self._further_of(cells)))
        if len(task.unread) == _READ_TOGETHER:
            self.complete()

    def _new_task(self, identity: Sequence[str], line: int, cells: Sequence[str], params: Sequence[str]) -> _Task:
        """Add the task of its first row."""
        task = _Task(line, self._problem_texts(cells), _stripped(self._facts_of(cells)), params)
        return self.tasks.setdefault(identity, task)

    def _problem_texts(self, cells: Sequence[str]) -> Mapping[str, str]:
        texts = zip(self._problem, _stripped(self._problem_of(cells)), strict=True)
        return {name.removeprefix("problem."): text for name, text in texts if text}

    def _is_asked(self, line: int, cells: Sequence[str]) -> bool:
        if self._problems is None:
            return True
        if (texts := self._problem_of(cells)) not in self._asked:
            self._asked[texts] = _problem(self._file, line, self._problem_texts(cells))[0] in self._problems
        return self._asked[texts]

    def complete(self) -> None:
        """Read what is unread of the rows so far."""
        if self._last is None or not self._last[1].unread:
            return
        _, task = self._last
        outcomes, further_cells = zip(*task.unread, strict=True)
        reasons: Iterable[str] = [""] * len(outcomes)
        first = len(task.points.ends)
        if not self._add_plain(task.points, outcomes):
            reasons = (
                self._add_outcome(task.points, line, *_stripped(outcome))
                for line, outcome in zip(task.lines[first:], outcomes, strict=True)
            )
        for position, (reason, further) in enumerate(zip(reasons, further_cells, strict=True), first):
            if reason or any(further):
                cells = dict(zip(self._further, _stripped(further), strict=True))
                task.points.extras[position] = self._extras(task.lines[position], reason, cells)
        task.unread.clear()

    def landscape(self, task: _Task) -> Landscape:
        """Return the landscape of a task whose rows are complete."""
        problem, name = _problem(self._file, task.line, task.problem)
        facts = zip(self._facts, task.facts, strict=True)
        context = {fact.removeprefix("task."): text for fact, text in facts if text}
        params = recorded_params(task.params, task.points)
        return Landscape(name, str(self._file), params, task.points, problem, context)

    def _add_plain(self, points: PointColumns, outcomes: Sequence[Sequence[str]]) -> bool:
        """Add rows to the columns that are all ok, with times that are plain decimals; return False for any others.

        Nearly all rows are, and many together take half the time of one after the other.
        """
        words, times, *launches = zip(*outcomes, strict=True)
        if set(words) != {"ok"}:
            return False
        times_ns = csv_cells.plain_times(";".join(times), TIME[self._time])
        samples_ns = csv_cells.plain_times(";".join(*launches), TIMES[self._times]) if launches else []
        if times_ns is None or samples_ns is None or len(times_ns) > len(times):
            return False
        counts = [text.count(";") + 1 for texts in launches for text in texts] or [0] * len(times)
        points.ends.extend(islice(accumulate(counts, initial=len(points.samples_ns)), 1, None))
        points.samples_ns.extend(samples_ns)
        points.statuses.extend([Status.OK] * len(times))
        points.times_ns.extend(times_ns)
        return True

    def _add_outcome(self, points: PointColumns, line: int, word: str, time: str, times: str = "") -> str:
        """Add status, time and launches to the columns, and return the reason of a failure."""
        if not word:
            raise self._error(line, "status", word, "expected ok, or the reason why not")
        status, reason = csv_cells.read_status(word)
        time_ns = 0.0
        if status is Status.OK:
            time_ns = self._read(line, self._time, time, _NANOSECONDS[self._time], "a time above 0")
            if times:
                points.samples_ns.extend(self._launches(line, times))
        points.statuses.append(status)
        points.times_ns.append(time_ns)
        points.ends.append(len(points.samples_ns))
        return reason

    def _launches(self, line: int, times: str) -> Sequence[float]:
        try:
            return csv_cells.launches(times, TIMES[self._times])
        except ValueError as error:
            raise self._error(line, self._times, str(error), "expected times above 0, joined by ';'") from None

    def _extras(self, line: int, reason: str, cells: Mapping[str, str]) -> Extras:
        resources = build_seconds = None
        counts = tuple(map(cells.get, RESOURCES))
        if any(counts):
            if counts not in self._resources:
                self._resources[counts] = self._read_resources(line, cells)
            resources = self._resources[counts]
        if text := cells.get(BUILD_SECONDS):
            build_seconds = self._read(line, BUILD_SECONDS, text, csv_cells.duration, "a number of seconds")
        costs = [
            unit * self._read(line, column, cells[column], csv_cells.duration, "a number, 0 or more")
            for column, unit in COST.items()
            if cells.get(column)
        ]
        return reason, resources, build_seconds, sum(costs) if costs else None

    def _read_resources(self, line: int, cells: Mapping[str, str]) -> Resources:
        if not all(cells.get(column) for column in RESOURCES):
            raise LandscapeError(f"{self._file}, line {line}: give all of {', '.join(RESOURCES)}, or none")
        counts = {
            resource: self._read(line, column, cells[column], csv_cells.whole_number, "a whole number")
            for column, resource in RESOURCES.items()
        }
        return Resources(**counts)

    def _read(self, line: int, column: str, text: str, read_cell: Callable[[str], _T], expected: str) -> _T:
        try:
            return read_cell(text)
        except ValueError:
            raise self._error(line, column, text, f"expected {expected}") from None

    def _differing(self, task: _Task, line: int, facts: Sequence[str], params: Sequence[str]) -> LandscapeError:
        """Return the error of a row that differs from the first one in a fact of the task, or in its parameters."""
        for fact, before, now in zip(self._facts, task.facts, facts, strict=True):
            if before != now:
                other = f"it is {before!r} on line {task.line}"
                return self._error(line, fact, now, f"{other}; a task has one value in all its rows")
        blank = next(param for param in self._params if (param in params) != (param in task.params))
        where = task.line if blank in params else line
        way_out = "fill it, or leave it blank in all rows of the task"
        return self._error(where, blank, "", f"a parameter is blank; {way_out}")

    def _error(self, line: int, column: str, text: str, message: str) -> LandscapeError:
        return LandscapeError(f"{self._file}, line {line}, column {column}, value {text!r}: {message}")


def _stripped(cells: Sequence[str]) -> tuple[str, ...]:
    """Return the cells without white space around them; most rows need none of theirs stripped."""
    return tuple(map(str.strip, cells))


def _picker(positions: Sequence[int]) -> Callable[[Sequence[str]], Sequence[str]]:
    """Return a function that returns the cells at these positions."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda cells: ()
    (position,) = positions
    return lambda cells: (cells[position],)


def _config(names: Sequence[str], texts: Sequence[str]) -> tuple[Sequence[str], Config]:
    """Return the names of the parameters that are not blank, and their config."""
    filled = {name: csv_cells.value(text) for name, text in zip(names, texts, strict=True) if text}
    return tuple(filled), Config(filled)


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
