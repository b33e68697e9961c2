"""Report of `gemmtune campaigns`: progress of each problem and worker, read from the database."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.verdict import BoardVerdict
from gemmtune.engine.records.workload import baseline_name
from gemmtune.engine.report.campaigns import campaign_json, campaigns_grid, shown_of
from gemmtune.engine.report.layout import (
    Grid,
    Report,
    bound,
    count,
    doubted,
    lead_of,
    lead_text,
    left_out,
    microseconds,
    tally,
)
from gemmtune.engine.report.progress.progress_file import Progress
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.queries import MeasurementCount

IDLE_SECONDS = 60.0
"""Seconds without a word from a campaign after which it is taken for stopped."""

_Key = tuple[str, str, str, str]  # device, problem, evidence and protocol: times of several are not compared


@dataclass(frozen=True, slots=True)
class ProblemProgress:
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
class CampaignStatus:
    """Progress of everything in a database."""

    problems: list[ProblemProgress]
    """Progress of each problem, the most recently measured first."""
    baseline: str
    """Name of the kernels that the best ones are compared with."""
    workers: dict[str, tuple[int, str]]
    """Number of measurements of each worker and the UTC time of its last one, the most recent first."""
    measurements: int
    """Number of measurements, baselines and failures included."""
    finals: int
    """Number of finals that were held."""
    failures: dict[str, int]
    """Number of failed evaluations by status."""
    last_at: str | None
    """UTC time of the last measurement, ISO 8601; None without one."""
    measured_at: str | None
    """UTC time of the last one that was no replay; None without one."""
    last_minute: int
    """Number of measurements of the last minute."""
    boards: list[BoardVerdict]
    """Last verdict on each board that measured."""


def read_status(database: Database, now: datetime) -> CampaignStatus:
    """Return the progress of everything in a database; raises StoreError if the database cannot be read."""
    minute_ago = (now - timedelta(minutes=1)).isoformat(timespec="seconds")
    database.fastest_of_each()  # names those that are damaged, which counts leave out
    counts, finals = database.counts(), database.finals()
    problems = _problems(counts, finals)
    last_at = max((each.last_at for each in counts), default=None)
    return CampaignStatus(
        problems,
        baseline_name(each.task.problem for each in counts),
        _workers(counts),
        sum(each.number for each in counts),
        len(finals),
        dict(sorted(sum((Counter(p.failures) for p in problems), Counter[str]()).items())),
        last_at,
        max((each.last_at for each in counts if each.evidence is not Evidence.REPLAYED), default=None),
        database.number_since(minute_ago) if last_at is not None and last_at >= minute_ago else 0,
        list(database.boards.verdicts().values()),
    )


def status_report(database: Database, now: datetime, progress: Progress | None = None) -> Report:
    """Report the progress of each problem, the most recently measured first, and of each worker.

    `progress` is that of the campaign which runs now, or was stopped.

    Raises:
        StoreError: the database cannot be read.
    """
    found = read_status(database, now)
    problems, (withdrawn, _), measured_at = found.problems, database.boards.withdrawn(), found.measured_at
    title = f"{count(len(problems), 'problem')}, {count(found.measurements, 'measurement')}"
    campaigns = database.campaigns.all()
    sections: list[str | Grid] = []
    if found.last_at is not None:
        title += f"; {count(found.finals, 'final')}" if found.finals else ""
        replayed = f"; replayed from recordings of {found.last_at}"
        title += f"; last measured {ago(measured_at, now)}" if measured_at else replayed
        title += f", {found.last_minute} in the last minute" if found.last_minute else ""
        title += f"\nfailed: {tally(found.failures)}" if found.failures else ""
        title += _progress_text(progress, now)
        columns = {
            "worker": list(found.workers),
            "measured": [str(measured) for measured, _ in found.workers.values()],
            "last": [ago(last, now) for _, last in found.workers.values()],
        }
        sections = [_problems_grid(problems, found.baseline), Grid(columns, ("worker", "last"))]
    live = shown_of(campaigns)
    sections = [*([campaigns_grid(live)] if live else []), *sections]
    record = {
        "at": now.isoformat(timespec="seconds"),
        "measurements": found.measurements,
        "finals": found.finals,
        "last_minute": found.last_minute,
        "last_measured_at": found.last_at,
        "failures": found.failures,
        "problems": problems,
        "progress": progress,
        "campaigns": [campaign_json(each) for each in campaigns],
        "damaged": database.damaged,
        "boards": found.boards,
        "withdrawn": withdrawn,
        "workers": {name: {"measured": measured, "last_at": last} for name, (measured, last) in found.workers.items()},
    }
    gone = [f"{count(withdrawn, 'measurement')} withdrawn"] if withdrawn else []
    return Report(record, [title, *sections, *doubted(found.boards), *gone, *left_out(database.damaged)])


def _progress_text(progress: Progress | None, now: datetime) -> str:
    if progress is None or not progress.total:
        return ""
    left = "" if progress.seconds_left is None else f", about {duration(progress.seconds_left)} left"
    if (idle := (now - datetime.fromisoformat(progress.at)).total_seconds()) >= IDLE_SECONDS:
        left = f"; silent for {duration(idle)}: the campaign was stopped, or its process ended or hangs in a plug-in"
    return f"\n{progress.done} of {progress.total} evaluations ({progress.done / progress.total:.0%}){left}"


def _problems_grid(problems: Sequence[ProblemProgress], baseline: str) -> Grid:
    distinct = {"evidence": [p.evidence for p in problems], "protocol": [p.protocol for p in problems]}
    columns = {
        "problem": [f"{p.device}/{p.problem}" for p in problems],
        **{name: values for name, values in distinct.items() if len(set(values)) > 1},
        "best µs": [microseconds(p.best_ns) for p in problems],
        f"{baseline} µs": [microseconds(p.baseline_ns) for p in problems],
        "lead": [lead_text(lead_of(p.baseline_ns, p.best_ns)) for p in problems],
        "evals": [str(p.evaluations) for p in problems],
        "failed": [tally(p.failures) or "-" for p in problems],
        "final": [bound(p.regret_bound) for p in problems],
    }
    return Grid(columns, ("problem", "evidence", "protocol", "failed"))


def _problems(counts: Sequence[MeasurementCount], finals: Sequence[Final]) -> list[ProblemProgress]:
    by_key: dict[_Key, list[MeasurementCount]] = {}
    for each in counts:
        key = each.task.device.sku, each.task.problem.name, each.evidence.value, each.protocol
        by_key.setdefault(key, []).append(each)
    bounds = {(f.device.sku, f.problem.name, f.protocol): f.regret_bound for f in finals}
    ordered = sorted(by_key.items(), key=lambda item: max(each.last_at for each in item[1]), reverse=True)
    return [_problem(key, of, bounds.get((key[0], key[1], key[3]))) for key, of in ordered]


def _problem(key: _Key, counts: Sequence[MeasurementCount], regret_bound: float | None) -> ProblemProgress:
    ok = [each for each in counts if each.status is Status.OK]
    timed = [(each.best_ns, each.task) for each in ok if each.best_ns is not None]
    failures: Counter[str] = Counter()
    for each in counts:
        if each.status is not Status.OK:
            failures[each.status.value] += each.number
    searched = ((time_ns, task.space) for time_ns, task in timed if not task.is_baseline)
    best_ns, space = min(searched, default=(None, None))
    baseline_ns = min((time_ns for time_ns, task in timed if task.is_baseline), default=None)
    evaluations = sum(each.number for each in counts if not each.task.is_baseline)
    return ProblemProgress(*key, evaluations, dict(sorted(failures.items())), space, best_ns, baseline_ns, regret_bound)


def _workers(counts: Sequence[MeasurementCount]) -> dict[str, tuple[int, str]]:
    """Return the measurements of each worker and the time of its last one, the most recent first."""
    found: dict[str, tuple[int, str]] = {}
    for each in counts:
        measured, last_at = found.get(each.worker, (0, ""))
        found[each.worker] = measured + each.number, max(last_at, each.last_at)
    return dict(sorted(found.items(), key=lambda item: item[1][1], reverse=True))


def ago(at: str, now: datetime) -> str:
    """Return the time since `at`; `at` itself if it is no point in time."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at or "-"
    return at if then.tzinfo is None else f"{duration(max((now - then).total_seconds(), 0))} ago"
