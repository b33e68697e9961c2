"""Where a running campaign stands, for those who show it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.execution.load import Load
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.report.layout import count, readable, readable_unit
from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["ProblemStanding", "Standing", "WorkerStanding", "duration"]

_TELLING = 8  # new evaluations before the rate is worth extrapolating
_WINDOW_SECONDS = 30.0  # that the rate is told of


@dataclass(slots=True)
class ProblemStanding:
    """One problem."""

    tasks: int = 0
    """Searches of it that are not over."""
    total: int = 0
    """Evaluations they may spend, with those that are over."""
    done: int = 0
    """Evaluations that are done."""
    best: float | None = None
    """The best score of the searched spaces."""
    baseline: float | None = None
    """The baseline's."""


@dataclass(slots=True)
class WorkerStanding:
    """One GPU."""

    measured: int = 0
    """Configs that it has timed."""
    seconds: float = 0.0
    """Since it was first seen."""
    busy_seconds: float = 0.0
    """Of which it had something at hand to time."""
    lost: bool = False
    """Whether it is no longer there."""

    @property
    def busy(self) -> float | None:
        """Share of its time; None before there is any."""
        return self.busy_seconds / self.seconds if self.seconds else None


@dataclass(slots=True)
class Standing:
    """What is known so far."""

    unit: str
    """Of the scores."""
    now: Callable[[], float]
    """Seconds of a clock that never goes back."""
    total: int = 0
    """Evaluations all searches may spend; less when some end early."""
    done: int = 0
    """Evaluations that are done, those the database answered included."""
    new: int = 0
    """Those that were made now."""
    tasks: int = 0
    """Searches there are."""
    ended: int = 0
    """Searches that are over."""
    finals: int = 0
    """Finals that were held."""
    failures: Counter[str] = field(default_factory=Counter)
    """Status to evaluations that ended so, ok left out."""
    problems: dict[Problem, ProblemStanding] = field(default_factory=dict)
    """The one that was heard of last comes last."""
    workers: dict[str, WorkerStanding] = field(default_factory=dict)
    """By name."""
    load: Load | None = None
    """The executor's."""
    seconds_left: float | None = None
    """Until searching ends; None where no time is set."""
    _spent: dict[Task, int] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=deque)
    _began: float = 0.0
    _looked: float | None = None

    def __post_init__(self) -> None:
        """Begin to count time."""
        self._began = self.now()

    def began(self, searches: Sequence[TaskSearch]) -> None:
        """As a Watcher. Where a campaign goes on with other searches, of the same tasks or not, they are more to do."""
        self.tasks += len(searches)
        self.total += sum(search.evaluations for search in searches)
        self._spent = {}
        for search in searches:
            problem = self.problems.setdefault(search.task.problem, ProblemStanding())
            problem.tasks += 1
            problem.total += search.evaluations

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """As a Watcher."""
        task = measurement.task
        problem = self.problems.pop(task.problem, None) or ProblemStanding()
        self.problems[task.problem] = problem
        problem.done += 1
        self.done += 1
        self._spent[task] = self._spent.get(task, 0) + 1
        if measurement.status is not Status.OK:
            self.failures[measurement.status.value] += 1
        if score is not None and task.space == BASELINE_SPACE:
            problem.baseline = score if problem.baseline is None else min(score, problem.baseline)
        elif score is not None:
            problem.best = score if problem.best is None else min(score, problem.best)
        if not known:
            self.new += 1
            now = self.now()
            self._recent.append(now)
            self._forget(now)
            if measurement.worker in self.workers:
                self.workers[measurement.worker].measured += 1

    def search_ended(self, search: TaskSearch) -> None:
        """One search is over: what it has not spent is not to come."""
        unspent = search.evaluations - self._spent.get(search.task, 0)
        self.total -= unspent
        problem = self.problems[search.task.problem]
        problem.total -= unspent
        problem.tasks -= 1
        self.ended += 1

    def looked(self, load: Load | None, seconds_left: float | None) -> None:
        """As a Watcher. Until it looks again, workers do what they were seen to do: hand-overs are what wakes it."""
        now, before = self.now(), self.load
        passed = 0.0 if self._looked is None else now - self._looked
        self.load, self.seconds_left, self._looked = load, seconds_left, now
        if load is None:
            return
        for name, busy in (before.workers if before else {}).items():
            self.workers[name].seconds += passed
            self.workers[name].busy_seconds += passed * busy
        for name in load.workers:
            self.workers.setdefault(name, WorkerStanding())
        for name, worker in self.workers.items():
            worker.lost = name not in load.workers

    @property
    def seconds(self) -> float:
        """Since the campaign began."""
        return self.now() - self._began

    @property
    def rate(self) -> float:
        """New evaluations a second, of late."""
        self._forget(self.now())
        return len(self._recent) / max(min(self.seconds, _WINDOW_SECONDS), 1e-3)

    def _forget(self, now: float) -> None:
        while self._recent and self._recent[0] < now - _WINDOW_SECONDS:
            self._recent.popleft()

    @property
    def rate_text(self) -> str:
        """`51/s`."""
        return f"{self.rate:.{1 if self.rate < 100 else 0}f}/s"

    @property
    def left_text(self) -> str:
        """The time left at the rate of late, and at most what the limits leave."""
        if self.new < _TELLING or not self.rate:
            return "starting" if self.new < _TELLING else "waiting"
        seconds = (self.total - self.done) / self.rate
        return f"about {duration(min(seconds, seconds if self.seconds_left is None else self.seconds_left))} left"

    def problem_text(self, problem: Problem) -> str:
        """The best of a problem, against its baseline."""
        standing = self.problems[problem]
        if standing.best is None:
            return problem.name
        best = f"{problem.name} {readable(standing.best, self.unit)} {readable_unit(self.unit)}"
        if standing.baseline is not None:
            best += f", {standing.baseline / standing.best:.3f}× {BASELINE_SPACE}"
        return best

    @property
    def failures_text(self) -> str:
        """`3 build_failed, 1 timed_out`; empty for none."""
        return ", ".join(f"{number} {status}" for status, number in sorted(self.failures.items()))

    @property
    def load_text(self) -> str:
        """The build queue; empty where the executor does not say."""
        if self.load is None:
            return ""
        return f"{self.load.queued} queued, {self.load.building} building, {self.load.timing} to be timed"

    @property
    def summary(self) -> str:
        """All of it, in a line."""
        known = self.done - self.new
        parts = [
            f"{count(self.new, 'evaluation')} in {duration(self.seconds)}",
            f"{self.new / max(self.seconds, 1e-3):.1f}/s",
            *([f"{known} known"] if known else []),
            f"{self.ended} of {count(self.tasks, 'task')} done",
            *([count(self.finals, "final")] if self.finals else []),
            *([f"failed: {self.failures_text}"] if self.failures else []),
            *(f"{name} {w.busy:.0%} busy" for name, w in sorted(self.workers.items()) if w.busy is not None),
        ]
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """`42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
