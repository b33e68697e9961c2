"""Reports of `gemmtune show` on a database, and of merging and forgetting."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import StoreError
from gemmtune.engine.records.final import FailedFinalist, Final, Finalist
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import (
    Grid,
    Report,
    bound,
    config_text,
    count,
    json_fields,
    left_out,
    microseconds,
    tally,
)
from gemmtune.engine.report.pareto import Scored, front_json, front_sections
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.merge import Merged

_Key = tuple[Task, str, str]  # task, evidence and protocol


@dataclass(slots=True)
class _TaskSummary:
    """Measurements of one task with one evidence and protocol; times of several are not compared."""

    task: Task
    evidence: str
    protocol: str
    evaluations: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    best_ns: float | None = None
    best: Config | None = None
    scored: list[Scored] = field(default_factory=list)  # latency and energy, where energy was measured


def database_report(database: Database) -> Report:
    """Report a database's tasks, finals and Pareto fronts with energy; raises StoreError if it cannot be read."""
    pair = registry.objective("latency_energy")
    summaries = _summaries(database, pair)
    tasks, finals = list(summaries.values()), database.finals()
    record = {
        "tasks": [
            {
                "task": each.task.key,
                **json_fields(each, "evidence", "protocol", "evaluations", "failures", "best_ns"),
                "best_config": each.best,
                "front": front_json(pair.parts, each.scored),
            }
            for each in tasks
        ],
        "finals": [_final_json(final) for final in finals],
        "damaged": database.damaged,
    }
    total, found = sum(each.evaluations for each in tasks), {each.task for each in tasks}
    baselines = sum(task.is_baseline for task in found)
    parts = [count(len(found) - baselines, "task"), *([count(baselines, "baseline")] if baselines else [])]
    sections: list[str | Grid] = [", ".join([*parts, count(total, "measurement")])]
    if tasks:
        sections.append(_tasks_grid(tasks))
    if tasks and finals:
        sections += [count(len(finals), "final"), _finals_grid(finals)]
    for each in tasks:
        sections += front_sections(each.task, pair.parts, each.scored) if each.scored else []
    return Report(record, [*sections, *left_out(database.damaged)])


def _summaries(database: Database, pair: Objective) -> dict[_Key, _TaskSummary]:
    """Return a summary per task, evidence and protocol, in the order of their first measurements."""
    summaries: dict[_Key, _TaskSummary] = {}
    fastest = database.fastest_of_each()  # names those that are damaged, which counts leave out
    for each in database.counts():
        key = each.task, each.evidence.value, each.protocol
        summary = summaries.setdefault(key, _TaskSummary(*key))
        summary.evaluations += each.number
        if each.status is not Status.OK:
            summary.failures[each.status.value] += each.number

    def summary_of(m: Measurement) -> _TaskSummary:
        if summary := summaries.get((m.task, m.evidence.value, m.protocol)):
            return summary
        where = f"{m.task.key}, {m.evidence}, {m.protocol}"
        raise StoreError(
            f"an index of the database lacks {where}: `gemmtune campaigns NEW merge OLD` copies what is whole"
        )

    for m in fastest:
        summary = summary_of(m)
        summary.best_ns, summary.best = None if m.estimate is None else m.estimate.time_ns, m.config
    for m in database.measurements_with_energy():
        if m.status is Status.OK:
            summary_of(m).scored.append((m.config, pair.scores(m)))
    return summaries


def merge_report(merged: Mapping[str, Merged]) -> Report:
    """Report the measurements and finals of each database that was merged into another one."""
    lines = []
    for source, found in merged.items():
        measurements = f"{count(found.measurements, 'measurement')}, {found.new} new"
        finals = f"{count(found.finals, 'final')}, {found.new_finals} new"
        lines.append(f"{source}: {'; '.join([measurements, finals, *left_out(found.damaged)])}")
    return Report(merged, ["\n".join(lines)])


def withdrawal_report(board: str, since: str, number: int) -> Report:
    """Report how many measurements of a board were withdrawn."""
    record = {"board": board, "since": since, "withdrawn": number}
    return Report(record, [f"{board}: {count(number, 'measurement')} withdrawn, kept and not used"])


def _tasks_grid(tasks: Sequence[_TaskSummary]) -> Grid:
    columns = {"task": [each.task.key for each in tasks], "evidence": [each.evidence for each in tasks]}
    if len({each.protocol for each in tasks}) > 1:
        columns["protocol"] = [each.protocol for each in tasks]
    columns["evals"] = [str(each.evaluations) for each in tasks]
    columns["best µs"] = [microseconds(each.best_ns) for each in tasks]
    columns["failed"] = [tally(each.failures) or "-" for each in tasks]
    columns["best config"] = [config_text(each.task, each.best) for each in tasks]
    return Grid(columns, ("task", "evidence", "protocol", "failed", "best config"))


def _finals_grid(finals: Sequence[Final]) -> Grid:
    columns = {"final": [f"{final.device.sku}/{final.problem.name}" for final in finals]}
    if len({final.protocol for final in finals}) > 1:
        columns["protocol"] = [final.protocol for final in finals]
    columns["leader"] = [final.leader.task.space for final in finals]
    columns["µs"] = [microseconds(final.leader.estimate.time_ns) for final in finals]
    columns["ties"] = [str(len(final.tie_band)) for final in finals]
    columns["regret"] = [bound(final.regret_bound) for final in finals]
    if any(final.failed for final in finals):
        columns["failed"] = [str(len(final.failed)) for final in finals]
    columns["config"] = [config_text(final.leader.task, final.leader.config) for final in finals]
    return Grid(columns, ("final", "protocol", "leader", "config"))


def _final_json(final: Final) -> dict[str, object]:
    return {
        "problem": final.problem.name,
        "device": final.device.sku,
        **json_fields(final, "protocol", "created_at"),
        "leader": _finalist(final.leader) | {"time_ns": final.leader.estimate.time_ns},
        "tie_band": [_finalist(finalist) for finalist in final.tie_band],
        "finalists": len(final.finalists),
        "regret_bound": final.regret_bound,
        "failed": [_finalist(failed) | {"reason": failed.reason} for failed in final.failed],
    }


def _finalist(finalist: Finalist | FailedFinalist) -> dict[str, object]:
    return {"space": finalist.task.space, "config": finalist.config}
