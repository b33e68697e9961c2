"""What `show` prints: the rows of a table, or what a database holds."""

from __future__ import annotations

from collections import Counter

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.table import Choice, Row, Table
from gemmtune.engine.report.layout import config_text, microseconds, table_text
from gemmtune.engine.store.database import Database

__all__ = ["database", "database_record", "table", "table_record"]


def table(shown: Table) -> str:
    """One line a row: what production should run, and how sure that is."""
    headers = ["problem", "run", "µs", "95 % interval", "aten µs", "margin", "ties", "evidence", "config"]
    rows = [_row(row) for row in shown.rows]
    title = f"{shown.device.name}: {len(shown.rows)} rows, objective {shown.objective}"
    return f"{title}\n\n{table_text(headers, rows, left=('problem', 'run', 'evidence', 'config'))}"


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


def database(shown: Database) -> str:
    """One line a task: evaluations, failures by status, the fastest."""
    headers = ["task", "evidence", "evals", "best µs", "failed", "best config"]
    rows = []
    for record in _tasks(shown):
        failed = ", ".join(f"{count} {status}" for status, count in record.failed.items()) or "-"
        rows.append([*record.key, str(record.evaluations), microseconds(record.best_ns), failed, record.best_config])
    return table_text(headers, rows, left=("task", "evidence", "failed", "best config"))


def database_record(shown: Database) -> dict[str, object]:
    """The same for programs."""
    return {
        "tasks": [
            {
                "task": record.key[0],
                "evidence": record.key[1],
                "evaluations": record.evaluations,
                "failures": dict(record.failed),
                "best_ns": record.best_ns,
                "best_config": record.best_config,
            }
            for record in _tasks(shown)
        ]
    }


class _TaskRecord:
    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        self.evaluations = 0
        self.failed: Counter[str] = Counter()
        self.best_ns: float | None = None
        self.best_config = "-"


def _tasks(shown: Database) -> list[_TaskRecord]:
    records: dict[tuple[str, str], _TaskRecord] = {}
    for m in shown.measurements():
        key = (m.task.key, m.evidence.value)
        record = records.setdefault(key, _TaskRecord(key))
        record.evaluations += 1
        if m.status is not Status.OK:
            record.failed[m.status.value] += 1
            continue
        middle = sorted(m.samples_ns)[len(m.samples_ns) // 2]
        if record.best_ns is None or middle < record.best_ns:
            record.best_ns, record.best_config = middle, config_text(m.config)
    return list(records.values())


def _row(row: Row) -> list[str]:
    first = row.choices[0]
    return [
        row.problem.name,
        first.space,
        microseconds(first.time_ns),
        f"{microseconds(first.low_ns)}–{microseconds(first.high_ns)}",
        microseconds(row.baseline.time_ns if row.baseline else None),
        f"{row.margin:+.1%}",
        str(len(row.tie_band)),
        first.evidence.value,
        config_text(first.config),
    ]


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
