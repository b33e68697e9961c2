"""What `show` prints: the rows of a table, or what a database holds."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from statistics import median

from gemmtune.engine.campaign.plan import BASELINE_SPACE
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, microseconds, table_text
from gemmtune.engine.store.database import Database

__all__ = ["database", "database_record", "table", "table_record"]

_LEFT = ("problem", "run", "evidence", "config", "task", "failed", "best config")


def table(shown: Table, width: int | None = None) -> str:
    """One line a row: what production should run, and how sure that is."""
    rows = shown.rows
    first = [row.choices[0] for row in rows]
    columns = {
        "problem": [row.problem.name for row in rows],
        "run": [choice.space for choice in first],
        "µs": [microseconds(choice.time_ns) for choice in first],
        "95 % interval": [f"{microseconds(choice.low_ns)}–{microseconds(choice.high_ns)}" for choice in first],
        f"{BASELINE_SPACE} µs": [microseconds(row.baseline.time_ns if row.baseline else None) for row in rows],
        "margin": [f"{row.margin:+.1%}" for row in rows],
        "ties": [str(len(row.tie_band)) for row in rows],
    }
    evidence = [choice.evidence.value for choice in first]
    if len(set(evidence)) > 1:
        columns["evidence"] = evidence
    columns["config"] = [
        config_text(Task(row.problem, shown.device, row.choices[0].space), row.choices[0].config) for row in rows
    ]
    title = f"{shown.device.name}: {count(len(rows), 'row')}, objective {shown.objective}"
    if len(set(evidence)) == 1:
        title += f", {evidence[0]}"
    body = table_text(list(columns), list(zip(*columns.values(), strict=True)), _LEFT, width)
    return f"{title}\n\n{body}"


def table_record(shown: Table) -> dict[str, object]:
    """The same for programs."""
    return {
        "device": shown.device.sku,
        "objective": shown.objective,
        "rows": [
            {
                "problem": row.problem.name,
                "margin": row.margin,
                "ties": len(row.tie_band),
                "choices": [_choice(choice) for choice in row.choices],
                "baseline_ns": row.baseline.time_ns if row.baseline else None,
            }
            for row in shown.rows
        ],
    }


def database(shown: Database, width: int | None = None) -> str:
    """One line a task: evaluations, failures by status, the fastest."""
    headers = ["task", "evidence", "evals", "best µs", "failed", "best config"]
    rows, records = [], _tasks(shown)
    for record in records:
        failed = ", ".join(f"{number} {status}" for status, number in record.failed.items()) or "-"
        best = config_text(record.task, record.best)
        rows.append(
            [record.task.key, record.evidence, str(record.evaluations), microseconds(record.best_ns), failed, best]
        )
    total = sum(record.evaluations for record in records)
    title = f"{count(len(rows), 'task')}, {count(total, 'measurement')}"
    return f"{title}\n\n{table_text(headers, rows, _LEFT, width)}" if rows else title


def database_record(shown: Database) -> dict[str, object]:
    """The same for programs."""
    return {
        "tasks": [
            {
                "task": record.task.key,
                "evidence": record.evidence,
                "evaluations": record.evaluations,
                "failures": dict(record.failed),
                "best_ns": record.best_ns,
                "best_config": None if record.best is None else dict(record.best),
            }
            for record in _tasks(shown)
        ]
    }


@dataclass(slots=True)
class _TaskRecord:
    task: Task
    evidence: str
    evaluations: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    best_ns: float | None = None
    best: Config | None = None


def _tasks(shown: Database) -> list[_TaskRecord]:
    records: dict[tuple[Task, str], _TaskRecord] = {}
    for m in shown.measurements():
        record = records.setdefault((m.task, m.evidence.value), _TaskRecord(m.task, m.evidence.value))
        record.evaluations += 1
        if m.status is not Status.OK:
            record.failed[m.status.value] += 1
            continue
        middle = median(m.samples_ns)
        if record.best_ns is None or middle < record.best_ns:
            record.best_ns, record.best = middle, m.config
    return list(records.values())


def _choice(choice: Choice) -> dict[str, object]:
    return {
        "space": choice.space,
        "config": dict(choice.config),
        "time_ns": choice.time_ns,
        "low_ns": choice.low_ns,
        "high_ns": choice.high_ns,
        "samples": choice.samples,
        "evidence": choice.evidence.value,
    }
