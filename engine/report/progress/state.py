"""Progress of a running campaign: counts, rates, bests, and the same facts as text."""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.records.final import Final, FinalNotHeld
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import count, lead_of, lead_text, readable, readable_unit, tally
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.scheduling.gain import Gain
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Load

_FIRST_EVALUATIONS = 8  # new evaluations before the rate is worth extrapolating
_RATE_SECONDS = 30.0  # window of the rate


@dataclass(slots=True)
class ProblemState:
    """Progress on one problem."""

    tasks: int = 0  # searches of the problem that still run
    total: int = 0  # evaluations its searches may spend
    done: int = 0  # evaluations that are done
    best: float | None = None  # best score in the searched spaces
    baseline: float | None = None  # best score of the baseline


@dataclass(slots=True)
class WorkerState:
    """Progress of one GPU."""

    measured: int = 0  # configs that the GPU has timed
    seconds: float = 0.0  # seconds since the GPU was first reported
    busy_seconds: float = 0.0  # seconds in which the GPU had at least one config queued or running
    lost: bool = False  # whether the executor no longer reports it

    @property
    def busy(self) -> float | None:
        """Busy share of the reported time; None before any time has passed."""
        return self.busy_seconds / self.seconds if self.seconds else None


@dataclass(slots=True)
class CampaignState(Callback):
    """Progress of a campaign, kept up to date by its events; views only read it."""

    unit: str  # unit of the scores
    clock: Callable[[], float]  # monotonic clock, in seconds
    total: int = 0  # evaluations all searches may spend; a search that ends early gives up its rest
    new: int = 0  # evaluations this run measured itself
    known: int = 0  # evaluations the database answered
    tasks: int = 0  # searches that have begun or will
    ended: int = 0  # searches that have ended
    finals: int = 0  # finals that were held
    failures: Counter[str] = field(default_factory=Counter)  # number of failed evaluations per status
    problems: dict[Workload, ProblemState] = field(default_factory=dict)  # the last measured one last
    workers: dict[str, WorkerState] = field(default_factory=dict)  # progress per GPU, by worker name
    load: Load | None = None  # latest load of the executor
    core_seconds: float = 0.0  # seconds in which builders built what this run measured
    gain: Gain = field(init=False)  # what the best configs save so far
    held_back: str = ""  # word for why nothing is submitted; empty where something is
    saving: bool = False  # whether searching is over, and the table is written
    seconds_left: float | None = None  # seconds until searching ends; None without a time limit
    _spent: dict[Task, int] = field(default_factory=dict)
    _recent: deque[float] = field(default_factory=deque)
    _started: float = 0.0
    _load_at: float | None = None

    def __post_init__(self) -> None:
        """Start the campaign's time."""
        self._started = self.clock()
        self.gain = Gain(self.clock)

    def on_begin(self, searches: Sequence[TaskSearch]) -> None:
        """Add a round of searches to the work; a task may be searched again in a later round.

        Baselines, which nobody asked for, are in no total: neither here nor among the evaluations.
        """
        self._spent = {}
        self.gain.on_begin(searches)
        if self.problems.keys() == {search.task.problem for search in searches}:
            self.problems.clear()  # they begin again, without what was withdrawn
        for search in searches:
            problem = self.problems.setdefault(search.task.problem, ProblemState())
            problem.tasks += 1
            if not search.task.is_baseline:
                self.tasks += 1
                self.total += search.budget
                problem.total += search.budget

    def on_measurement(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """Count one evaluation, and update the best score of its problem."""
        task = measurement.task
        self.gain.on_measurement(measurement, score, known=known)
        if not known and measurement.evidence is not Evidence.REPLAYED:
            self.core_seconds += measurement.build_seconds or 0.0
        problem = self.problems.pop(task.problem, None) or ProblemState()
        self.problems[task.problem] = problem
        if measurement.status is not Status.OK:
            self.failures[measurement.status.value] += 1
        if score is not None and task.is_baseline:
            problem.baseline = score if problem.baseline is None else min(score, problem.baseline)
        elif score is not None:
            problem.best = score if problem.best is None else min(score, problem.best)
        if not known and measurement.worker in self.workers:
            self.workers[measurement.worker].measured += 1
        if task.is_baseline:
            return
        problem.done += 1
        self._spent[task] = self._spent.get(task, 0) + 1
        if known:
            self.known += 1
        else:
            self.new += 1
            now = self.clock()
            self._recent.append(now)
            self._drop_old(now)

    def on_search_end(self, search: TaskSearch, reason: str) -> None:
        """Count the search as ended, and take its unspent evaluations off the total, unless it was cancelled."""
        if reason == "cancelled":
            return
        problem = self.problems[search.task.problem]
        problem.tasks -= 1
        if not search.task.is_baseline:
            unspent = search.budget - self._spent.get(search.task, 0)
            self.total -= unspent
            problem.total -= unspent
            self.ended += 1

    def on_final(self, final: Final | FinalNotHeld) -> None:
        """Count a final that was held."""
        self.finals += isinstance(final, Final)

    def on_save(self) -> None:
        """Note that searching is over."""
        self.saving = True

    def on_load(self, load: Load | None, seconds_left: float | None) -> None:
        """Keep the load, and credit each GPU with the time since the last report, busy if it was busy then."""
        self.gain.on_load(load, seconds_left)
        now, before = self.clock(), self.load
        passed = 0.0 if self._load_at is None else now - self._load_at
        self.load, self.seconds_left, self._load_at = load, seconds_left, now
        if load is None:
            return
        for name, busy in (before.workers if before else {}).items():
            self.workers[name].seconds += passed
            self.workers[name].busy_seconds += passed * busy
        for name in load.workers:
            self.workers.setdefault(name, WorkerState())
        for name, worker in self.workers.items():
            worker.lost = name not in load.workers

    @property
    def done(self) -> int:
        """Evaluations that are done, with those the database answered."""
        return self.new + self.known

    @property
    def gpu_seconds_held(self) -> float:
        """Seconds of GPUs that the executor had, busy or not."""
        return sum(worker.seconds for worker in self.workers.values())

    @property
    def gpu_seconds_busy(self) -> float:
        """Seconds of GPUs that had a config queued or running."""
        return sum(worker.busy_seconds for worker in self.workers.values())

    @property
    def seconds(self) -> float:
        """Seconds since the campaign began."""
        return self.clock() - self._started

    @property
    def rate(self) -> float:
        """New evaluations per second, over the last half minute."""
        self._drop_old(self.clock())
        return len(self._recent) / max(min(self.seconds, _RATE_SECONDS), 1e-3)

    def _drop_old(self, now: float) -> None:
        while self._recent and self._recent[0] < now - _RATE_SECONDS:
            self._recent.popleft()

    @property
    def work_text(self) -> str:
        """Evaluations done, their rate and the time left: `24/640 evaluations, 51/s, about 12 s left`."""
        return f"{self.done}/{self.total} evaluations, {self.rate_text}, {self.left_text}"

    @property
    def rate_text(self) -> str:
        """Rate as text, `51/s`."""
        return f"{self.rate:.{1 if self.rate < 100 else 0}f}/s"

    @property
    def left_text(self) -> str:
        """Time left at the present rate, at most the time limit's rest: `about 12 s left`."""
        if self.saving:
            return "writing table and report"
        if self.held_back:
            return self.held_back
        if self.new < _FIRST_EVALUATIONS or not self.rate:
            return "starting" if self.new < _FIRST_EVALUATIONS else "waiting"
        seconds = (self.total - self.done) / self.rate
        return f"about {duration(min(seconds, seconds if self.seconds_left is None else self.seconds_left))} left"

    def problem_text(self, problem: Workload) -> str:
        """Return the best score of a problem, and its lead over the baseline, as text."""
        state = self.problems[problem]
        if state.best is None:
            return problem.name
        best = f"{problem.name} {readable(state.best, self.unit)} {readable_unit(self.unit)}"
        if state.baseline is not None:
            best += f", lead {lead_text(lead_of(state.baseline, state.best))} over {problem.baseline_space}"
        return best

    @property
    def failures_text(self) -> str:
        """Failures per status, `3 build_failed, 1 timed_out`; empty without failures."""
        return tally(dict(sorted(self.failures.items())))

    @property
    def load_text(self) -> str:
        """Queue lengths as text; empty where the executor does not report its load."""
        if self.load is None:
            return ""
        return f"{self.load.queued} queued, {self.load.building} building, {self.load.timing} to be timed"

    @property
    def summary(self) -> str:
        """One line on the whole campaign."""
        parts = [
            f"{count(self.new, 'evaluation')} in {duration(self.seconds)}",
            f"{self.new / max(self.seconds, 1e-3):.1f}/s",
            *([f"{self.known} known"] if self.known else []),
            f"{self.ended} of {count(self.tasks, 'task')} done",
            *([count(self.finals, "final")] if self.finals else []),
            *([f"failed: {self.failures_text}"] if self.failures else []),
            *(f"{name} {w.busy:.0%} busy" for name, w in sorted(self.workers.items()) if w.busy is not None),
        ]
        return "; ".join(parts)


def duration(seconds: float) -> str:
    """Return a duration as text: `42 s`, `3 min 20 s`, `2 h 5 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
