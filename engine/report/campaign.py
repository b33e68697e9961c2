"""The summary of a finished campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan
from gemmtune.engine.campaign.session import Finding, Result
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import config_text, count, microseconds, table_text
from gemmtune.engine.tables.select import unserved

__all__ = ["summary", "summary_record"]


def summary(
    plan: Plan, device: Device, result: Result, notes: Sequence[str], written: Sequence[Path], width: int | None = None
) -> str:
    """One line a task, what the table says, and where the files are; on `width` columns, where that is given."""
    findings = result.findings
    replayed = any(m.evidence is Evidence.REPLAYED for m in result.measurements)
    ships = {row.problem: row.choices[0].space for row in result.table.rows}
    columns: dict[str, list[str]] = {"problem": [f.problem.name for f in findings]}
    if len(plan.spaces) > 1:
        columns["space"] = [f.space for f in findings]
    columns["best µs"] = [microseconds(f.time_ns) for f in findings]
    columns[f"{BASELINE_SPACE} µs"] = [microseconds(f.baseline_ns) for f in findings]
    columns[f"vs {BASELINE_SPACE}"] = [_lead(f) for f in findings]
    if replayed:
        columns["of optimum"] = [_share(f.fraction_of_optimum) for f in findings]
    columns["evals"] = [str(f.evaluations) for f in findings]
    if any(f.failures for f in findings):
        columns["failed"] = [str(sum(f.failures.values())) for f in findings]
    columns["ships"] = [ships.get(f.problem, "-") for f in findings]
    columns["best config"] = [config_text(Task(f.problem, device, f.space), f.config) for f in findings]
    rows = list(zip(*columns.values(), strict=True))
    source = "replayed from recorded landscapes" if replayed else "measured"
    problems = {m.task.problem for m in result.measurements}
    lines = [
        f"{device.name}, {source}: {count(len(problems), 'problem')} in {', '.join(plan.spaces)}",
        f"sampler {plan.sampler}, budget {plan.budget}, seed {plan.seed}",
        "",
        *([table_text(list(columns), rows, ("problem", "space", "ships", "best config"), width), ""] if rows else []),
    ]
    mean = _mean_fraction(findings)
    if mean is not None:
        lines.append(f"mean fraction of the recorded optimum: {mean:.4f}")
    lines.append(_shipped(result))
    lines.extend(notes)
    lines += ["written:", *(f"  {path}" for path in written)]
    return "\n".join(lines) + "\n"


def summary_record(
    plan: Plan, device: Device, result: Result, notes: Sequence[str], written: Sequence[Path]
) -> dict[str, object]:
    """The same for programs."""
    return {
        "device": device.sku,
        "sampler": plan.sampler,
        "budget": plan.budget,
        "seed": plan.seed,
        "fraction_of_optimum": _mean_fraction(result.findings),
        "rows": len(result.table.rows),
        "tasks": [_record(f) for f in result.findings],
        "notes": list(notes),
        "written": [str(path) for path in written],
    }


def _record(finding: Finding) -> dict[str, object]:
    return {
        "problem": finding.problem.name,
        "space": finding.space,
        "config": None if finding.config is None else dict(finding.config),
        "time_ns": finding.time_ns,
        "baseline_ns": finding.baseline_ns,
        "evaluations": finding.evaluations,
        "failures": dict(finding.failures),
        "fraction_of_optimum": finding.fraction_of_optimum,
    }


def _lead(finding: Finding) -> str:
    if finding.time_ns is None or finding.baseline_ns is None:
        return "-"
    return f"{finding.baseline_ns / finding.time_ns:.3f}×"


def _share(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.3f}"


def _mean_fraction(findings: Sequence[Finding]) -> float | None:
    fractions = [f.fraction_of_optimum for f in findings if f.fraction_of_optimum is not None]
    return sum(fractions) / len(fractions) if fractions else None


def _shipped(result: Result) -> str:
    spaces = Counter(row.choices[0].space for row in result.table.rows)
    rows = ", ".join(f"{number} {space}" for space, number in sorted(spaces.items())) or "none"
    without = ", ".join(problem.name for problem in unserved(result.table, result.measurements))
    return f"rows of the table: {rows}" + (f"; nothing worked for {without}" if without else "")
