"""Report of `gemmtune status`: progress of a campaign, read from its database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta

from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.report.layout import bound, columns_text, count, microseconds, speedup
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.queries import MeasurementCount

__all__ = ["StatusReport", "read_status"]

_Key = tuple[str, str, str, str]  # device, problem, evidence and protocol: times of several are not compared


@dataclass(frozen=True, slots=True)
class _Problem:
    """Progress on one problem with one evidence and protocol."""

    device: str
    problem: str
    evidence: str
    protocol: str
    evaluations: int
    failures: dict[str, int]
    best_space: str | None
    best_ns: float | None
    baseline_ns: float | None
    regret_bound: float | None


@dataclass(frozen=True, slots=True)
class _Worker:
    """Measurements of one worker."""

    measured: int
    last_at: str


@dataclass(frozen=True, slots=True)
class StatusReport:
    """Progress of a campaign at one moment."""

    now: datetime
    """Moment of the report."""
    problems: Sequence[_Problem]
    """Progress per problem, the most recently measured first."""
    workers: dict[str, _Worker]
    """Measurements per worker, the most recent worker first."""
    finals: int
    """Finals that were held."""
    last_minute: int
    """Measurements made in the last minute."""
    last_measured_at: str | None
    """Time of the latest measurement: UTC, ISO 8601; None without one."""

    @property
    def measurements(self) -> int:
        """Number of measurements, failures included."""
        return sum(problem.evaluations for problem in self.problems)

    @property
    def failures(self) -> dict[str, int]:
        """Number of failed measurements per status."""
        total = sum((Counter(problem.failures) for problem in self.problems), Counter[str]())
        return dict(sorted(total.items()))

    def to_text(self, width: int | None = None) -> str:
        """Return a line per problem, then one per worker."""
        problems, now = self.problems, self.now
        title = f"{count(len(problems), 'problem')}, {count(self.measurements, 'measurement')}"
        if self.last_measured_at is None:
            return title
        title += f"; {count(self.finals, 'final')}" if self.finals else ""
        title += f"; last measured {_ago(self.last_measured_at, now)}"
        title += f", {self.last_minute} in the last minute" if self.last_minute else ""
        distinct = {"evidence": [p.evidence for p in problems], "protocol": [p.protocol for p in problems]}
        columns = {
            "problem": [f"{p.device}/{p.problem}" for p in problems],
            **{name: values for name, values in distinct.items() if len(set(values)) > 1},
            "best µs": [microseconds(p.best_ns) for p in problems],
            f"{BASELINE_SPACE} µs": [microseconds(p.baseline_ns) for p in problems],
            f"vs {BASELINE_SPACE}": [speedup(p.baseline_ns, p.best_ns) for p in problems],
            "evals": [str(p.evaluations) for p in problems],
            "failed": [_counts(p.failures) or "-" for p in problems],
            "final": [bound(p.regret_bound) for p in problems],
        }
        workers = {
            "worker": list(self.workers),
            "measured": [str(worker.measured) for worker in self.workers.values()],
            "last": [_ago(worker.last_at, now) for worker in self.workers.values()],
        }
        failed = [f"failed: {_counts(self.failures)}"] if self.failures else []
        body = columns_text(columns, ("problem", "evidence", "protocol", "failed"), width)
        return "\n".join([title, *failed, "", body, "", columns_text(workers, ("worker", "last"), width)])

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        return {
            "at": self.now.isoformat(timespec="seconds"),
            "measurements": self.measurements,
            "finals": self.finals,
            "last_minute": self.last_minute,
            "last_measured_at": self.last_measured_at,
            "failures": self.failures,
            "problems": [asdict(problem) for problem in self.problems],
            "workers": {name: asdict(worker) for name, worker in self.workers.items()},
        }


def read_status(database: Database, now: datetime) -> StatusReport:
    """Read the progress of a campaign from its database.

    Raises:
        StoreError: the database cannot be read.
    """
    minute_ago = (now - timedelta(minutes=1)).isoformat(timespec="seconds")
    counts, finals = database.counts(), database.finals()
    last_minute, latest = database.number_since(minute_ago), max((each.last_at for each in counts), default=None)
    return StatusReport(now, _problems(counts, finals), _workers(counts), len(finals), last_minute, latest)


def _problems(counts: Sequence[MeasurementCount], finals: Sequence[Final]) -> list[_Problem]:
    by_key: dict[_Key, list[MeasurementCount]] = {}
    for each in counts:
        key = each.task.device.sku, each.task.problem.name, each.evidence.value, each.protocol
        by_key.setdefault(key, []).append(each)
    bounds = {(f.device.sku, f.problem.name, f.protocol): f.regret_bound for f in finals}
    ordered = sorted(by_key.items(), key=lambda item: max(each.last_at for each in item[1]), reverse=True)
    return [_problem(key, of, bounds.get((key[0], key[1], key[3]))) for key, of in ordered]


def _problem(key: _Key, counts: Sequence[MeasurementCount], regret_bound: float | None) -> _Problem:
    ok = [each for each in counts if each.status is Status.OK]
    timed = [(each.best_ns, each.task.space) for each in ok if each.best_ns is not None]
    failures: Counter[str] = Counter()
    for each in counts:
        if each.status is not Status.OK:
            failures[each.status.value] += each.number
    best_ns, space = min((each for each in timed if each[1] != BASELINE_SPACE), default=(None, None))
    baseline_ns = min((time_ns for time_ns, of in timed if of == BASELINE_SPACE), default=None)
    evaluations = sum(each.number for each in counts)
    return _Problem(*key, evaluations, dict(sorted(failures.items())), space, best_ns, baseline_ns, regret_bound)


def _workers(counts: Sequence[MeasurementCount]) -> dict[str, _Worker]:
    found: dict[str, _Worker] = {}
    for each in counts:
        before = found.get(each.worker, _Worker(0, ""))
        found[each.worker] = _Worker(before.measured + each.number, max(before.last_at, each.last_at))
    return dict(sorted(found.items(), key=lambda item: item[1].last_at, reverse=True))


def _counts(failures: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in failures.items())


def _ago(at: str, now: datetime) -> str:
    """Return the time since `at`; `at` itself if it is no point in time."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at or "-"
    return at if then.tzinfo is None else f"{duration(max((now - then).total_seconds(), 0))} ago"
