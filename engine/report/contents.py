"""What `show` and `merge` print: the rows of a table, what a database holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Evidence, Measurement
from gemmtune.engine.records.table import Choice, Table
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.report.layout import bound, config_text, count, microseconds, table_text
from gemmtune.engine.report.pareto import Scored, front_record, front_text
from gemmtune.engine.report.ranges import range_row_record, range_rows_text
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import Merged

__all__ = ["database", "database_record", "merged", "table", "table_record"]

_LEFT = ("problem", "run", "evidence", "protocol", "config", "task", "failed", "best config", "final", "leader")


def table(shown: Table, width: int | None = None) -> str:
    """One line a row: what production should run, and how sure that is."""
    rows = shown.rows
    first = [row.choices[0] for row in rows]
    columns = {
        "problem": [row.problem.name for row in rows],
        "run": [choice.space for choice in first],
        "µs": [microseconds(choice.time_ns) for choice in first],
        "95 % interval": [_interval(choice) for choice in first],
        f"{BASELINE_SPACE} µs": [microseconds(row.baseline.time_ns if row.baseline else None) for row in rows],
        "margin": [f"{row.margin:+.1%}" for row in rows],
        "ties": [str(len(row.tie_band)) for row in rows],
    }
    if any(row.regret_bound is not None for row in rows):
        columns["regret"] = [bound(row.regret_bound) for row in rows]
    if any(row.loss for row in rows):
        columns["loss"] = [f"{row.loss:.2%}" for row in rows]
    evidence = [choice.evidence.value for choice in first]
    if len(set(evidence)) > 1:
        columns["evidence"] = evidence
    columns["config"] = [
        config_text(Task(row.problem, shown.device, row.choices[0].space), row.choices[0].config) for row in rows
    ]
    title = f"{shown.device.name}: {count(len(rows), 'row')}, objective {shown.objective}"
    if len(set(evidence)) == 1:
        title += f", {evidence[0]}"
    ranges = [range_rows_text(shown, width)] if shown.ranges else []
    body = table_text(list(columns), list(zip(*columns.values(), strict=True)), _LEFT, width)
    return "\n\n".join([title, body, *ranges])


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
                "regret_bound": row.regret_bound,
                "loss": row.loss,
                "choices": [_choice(choice) for choice in row.choices],
                "baseline_ns": row.baseline.time_ns if row.baseline else None,
            }
            for row in shown.rows
        ],
        "ranges": [range_row_record(row) for row in shown.ranges],
    }


def database(shown: Database, width: int | None = None) -> str:
    """One line a task: evaluations, failures by status, the fastest. Then the finals, and each task's Pareto front."""
    records = _tasks(shown)
    columns = {"task": [record.task.key for record in records], "evidence": [record.evidence for record in records]}
    if len({record.protocol for record in records}) > 1:
        columns["protocol"] = [record.protocol for record in records]
    columns["evals"] = [str(record.evaluations) for record in records]
    columns["best µs"] = [microseconds(record.best_ns) for record in records]
    columns["failed"] = [_failures(record.failed) for record in records]
    columns["best config"] = [config_text(record.task, record.best) for record in records]
    total = sum(record.evaluations for record in records)
    title = f"{count(len({record.task for record in records}), 'task')}, {count(total, 'measurement')}"
    if not records:
        return title
    body = table_text(list(columns), list(zip(*columns.values(), strict=True)), _LEFT, width)
    parts = _pair().parts
    fronts = [front_text(record.task, parts, record.paired, width) for record in records if record.paired]
    return "\n\n".join([title, body, *_finals_text(shown.finals(), width), *fronts])


def database_record(shown: Database) -> dict[str, object]:
    """The same for programs."""
    parts = _pair().parts
    return {
        "tasks": [
            {
                "task": record.task.key,
                "evidence": record.evidence,
                "protocol": record.protocol,
                "evaluations": record.evaluations,
                "failures": dict(record.failed),
                "best_ns": record.best_ns,
                "best_config": None if record.best is None else dict(record.best),
                "front": front_record(parts, record.paired),
            }
            for record in _tasks(shown)
        ],
        "finals": [_final_record(final) for final in shown.finals()],
    }


def merged(source: str, found: Merged) -> str:
    """What a merge found in one database, in a line."""
    return (
        f"{source}: {count(found.measurements, 'measurement')}, {found.new} new; "
        f"{count(found.finals, 'final')}, {found.new_finals} new"
    )


def _finals_text(finals: Sequence[Final], width: int | None) -> list[str]:
    """The finals in the order they were held, the last of a problem last; nothing where there are none."""
    if not finals:
        return []
    columns = {"final": [f"{final.device.sku}/{final.problem.name}" for final in finals]}
    if len({final.protocol for final in finals}) > 1:
        columns["protocol"] = [final.protocol for final in finals]
    columns["leader"] = [final.leader.task.space for final in finals]
    columns["µs"] = [microseconds(final.leader.estimate.time_ns) for final in finals]
    columns["ties"] = [str(len(final.tie_band)) for final in finals]
    columns["regret"] = [bound(final.regret_bound) for final in finals]
    if any(final.failed for final in finals):
        columns["refuted"] = [str(len(final.failed)) for final in finals]
    columns["config"] = [config_text(final.leader.task, final.leader.config) for final in finals]
    return [count(len(finals), "final"), table_text(list(columns), zip(*columns.values(), strict=True), _LEFT, width)]


def _final_record(final: Final) -> dict[str, object]:
    return {
        "problem": final.problem.name,
        "device": final.device.sku,
        "protocol": final.protocol,
        "created_at": final.created_at,
        "leader": _finalist(final.leader) | {"time_ns": final.leader.estimate.time_ns},
        "tie_band": [_finalist(finalist) for finalist in final.tie_band],
        "finalists": len(final.finalists),
        "regret_bound": final.regret_bound,
        "refuted": [_finalist(out) | {"reason": out.reason} for out in final.failed],
    }


def _finalist(shown: Finalist | FailedFinalist) -> dict[str, object]:
    return {"space": shown.task.space, "config": dict(shown.config)}


@dataclass(slots=True)
class _TaskRecord:
    """What is held of a task by one evidence and protocol: times of several are not compared."""

    task: Task
    evidence: str
    protocol: str
    evaluations: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    best_ns: float | None = None
    best: Config | None = None
    paired: list[Scored] = field(default_factory=list)

    def add(self, measurement: Measurement) -> None:
        self.evaluations += 1
        if measurement.estimate is None:
            self.failed[measurement.status.value] += 1
            return
        time_ns = measurement.estimate.time_ns
        if self.best_ns is None or time_ns < self.best_ns:
            self.best_ns, self.best = time_ns, measurement.config
        if measurement.energy_joules is not None:
            self.paired.append((measurement.config, _pair().scores(measurement)))


def _tasks(shown: Database) -> list[_TaskRecord]:
    records: dict[tuple[Task, str, str], _TaskRecord] = {}
    for m in shown.measurements():
        key = m.task, m.evidence.value, m.protocol
        records.setdefault(key, _TaskRecord(*key)).add(m)
    return list(records.values())


@cache
def _pair() -> Objective:
    return registry.objective("latency_energy")


def _failures(failed: Counter[str]) -> str:
    return ", ".join(f"{number} {status}" for status, number in failed.items()) or "-"


def _interval(choice: Choice) -> str:
    """A dash for an estimate: how far off it may be is not known."""
    if choice.evidence is Evidence.ESTIMATED:
        return "-"
    return f"{microseconds(choice.low_ns)}–{microseconds(choice.high_ns)}"


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
