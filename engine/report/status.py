"""What `gemmtune status` prints: how far a campaign is, as its database tells it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import BASELINE_SPACE
from gemmtune.engine.report.layout import bound, count, microseconds, table_text
from gemmtune.engine.report.progress.state import duration
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.queries import MeasurementCount

__all__ = ["Found", "found_in", "status", "status_record"]

_Key = tuple[str, str, str, str]  # device, problem, evidence and protocol: times of several are not compared


@dataclass(frozen=True, slots=True)
class Found:
    """What the database says."""

    tally: Sequence[MeasurementCount]
    """Of its measurements."""
    finals: Sequence[Final]
    """That were held."""
    last_minute: int
    """Measurements that were made in the minute before."""


def found_in(database: Database, now: datetime) -> Found:
    """What a database says now.

    Raises:
        StoreError: it cannot be read.
    """
    minute_ago = (now - timedelta(minutes=1)).isoformat(timespec="seconds")
    return Found(database.counts(), database.finals(), database.number_since(minute_ago))


@dataclass(frozen=True, slots=True)
class _Problem:
    """One problem by one protocol."""

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


def status(found: Found, now: datetime, width: int | None = None) -> str:
    """A line a problem, the one that was measured last first; then the workers."""
    problems = _problems(found)
    title = f"{count(len(problems), 'problem')}, {count(sum(p.evaluations for p in problems), 'measurement')}"
    if not problems:
        return title
    told_apart = {"evidence": [p.evidence for p in problems], "protocol": [p.protocol for p in problems]}
    columns = {
        "problem": [f"{p.device}/{p.problem}" for p in problems],
        **{name: of for name, of in told_apart.items() if len(set(of)) > 1},
        "best µs": [microseconds(p.best_ns) for p in problems],
        f"{BASELINE_SPACE} µs": [microseconds(p.baseline_ns) for p in problems],
        f"vs {BASELINE_SPACE}": [_lead(p) for p in problems],
        "evals": [str(p.evaluations) for p in problems],
        "failed": [_counts(p.failures) for p in problems],
        "final": [bound(p.regret_bound) for p in problems],
    }
    left = ("problem", "evidence", "protocol", "failed", "worker", "last")
    body = table_text(list(columns), list(zip(*columns.values(), strict=True)), left, width)
    workers = _workers(found.tally)
    rows = [[name, str(number), _ago(last, now)] for name, (number, last) in workers.items()]
    held = f"; {count(len(found.finals), 'final')}" if found.finals else ""
    rate = f", {found.last_minute} in the last minute" if found.last_minute else ""
    failed = _counts(_sum(p.failures for p in problems))
    return "\n".join(
        [
            f"{title}{held}; last measured {_ago(max(t.last_at for t in found.tally), now)}{rate}",
            *([f"failed: {failed}"] if failed != "-" else []),
            "",
            body,
            "",
            table_text(["worker", "measured", "last"], rows, left, width),
        ]
    )


def status_record(found: Found, now: datetime) -> dict[str, object]:
    """The same for programs."""
    problems = _problems(found)
    return {
        "at": now.isoformat(timespec="seconds"),
        "measurements": sum(p.evaluations for p in problems),
        "finals": len(found.finals),
        "last_minute": found.last_minute,
        "last_measured_at": max((t.last_at for t in found.tally), default=None),
        "failures": _sum(p.failures for p in problems),
        "problems": [
            {
                "device": p.device,
                "problem": p.problem,
                "evidence": p.evidence,
                "protocol": p.protocol,
                "evaluations": p.evaluations,
                "failures": p.failures,
                "best_space": p.best_space,
                "best_ns": p.best_ns,
                "baseline_ns": p.baseline_ns,
                "regret_bound": p.regret_bound,
            }
            for p in problems
        ],
        "workers": {
            name: {"measured": number, "last_at": last} for name, (number, last) in _workers(found.tally).items()
        },
    }


def _problems(found: Found) -> list[_Problem]:
    tallies: dict[_Key, list[MeasurementCount]] = {}
    for t in found.tally:
        key = t.task.device.sku, t.task.problem.name, t.evidence.value, t.protocol
        tallies.setdefault(key, []).append(t)
    bounds = {(f.device.sku, f.problem.name, f.protocol): f.regret_bound for f in found.finals}
    ordered = sorted(tallies.items(), key=lambda item: max(t.last_at for t in item[1]), reverse=True)
    return [_problem(key, of, bounds.get((key[0], key[1], key[3]))) for key, of in ordered]


def _problem(key: _Key, tallies: Sequence[MeasurementCount], regret_bound: float | None) -> _Problem:
    failures: Counter[str] = Counter()
    for t in tallies:
        if t.status is not Status.OK:
            failures[t.status.value] += t.number
    timed = [(t.best_ns, t.task.space) for t in tallies if t.status is Status.OK and t.best_ns is not None]
    best_ns, space = min((each for each in timed if each[1] != BASELINE_SPACE), default=(None, None))
    baseline_ns = min((time_ns for time_ns, of in timed if of == BASELINE_SPACE), default=None)
    number = sum(t.number for t in tallies)
    return _Problem(*key, number, dict(sorted(failures.items())), space, best_ns, baseline_ns, regret_bound)


def _workers(tallies: Sequence[MeasurementCount]) -> dict[str, tuple[int, str]]:
    """By name: measurements, and the time of the last."""
    found: dict[str, tuple[int, str]] = {}
    for t in tallies:
        number, last = found.get(t.worker, (0, ""))
        found[t.worker] = number + t.number, max(last, t.last_at)
    return dict(sorted(found.items(), key=lambda item: item[1][1], reverse=True))


def _sum(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(sorted(total.items()))


def _counts(failures: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in failures.items()) or "-"


def _lead(p: _Problem) -> str:
    return "-" if p.best_ns is None or p.baseline_ns is None else f"{p.baseline_ns / p.best_ns:.3f}×"


def _ago(at: str, now: datetime) -> str:
    """How long ago that was; as it is written where it is no point in time."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at or "-"
    return at if then.tzinfo is None else f"{duration(max((now - then).total_seconds(), 0))} ago"
