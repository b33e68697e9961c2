"""The summary of a finished campaign."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.session import Finding, Result
from gemmtune.engine.records.device import Device
from gemmtune.engine.report.layout import config_text, microseconds, table_text

__all__ = ["summary", "summary_record"]


def summary(plan: Plan, device: Device, result: Result, out: Path) -> str:
    """One line a task, what the table says, and where the files are."""
    findings = result.findings
    replayed = any(f.fraction_of_optimum is not None for f in findings)
    headers = ["problem", "space", "best µs", "aten µs", "best/aten", "evals", "failed", "table", "best config"]
    if replayed:
        headers.insert(5, "of optimum")
    shipped = {row.problem: row.choices[0].space for row in result.table.rows}
    rows = []
    for f in findings:
        row = [
            f.problem.name,
            f.space,
            microseconds(f.time_ns),
            microseconds(f.baseline_ns),
            "-" if f.time_ns is None or f.baseline_ns is None else f"{f.baseline_ns / f.time_ns:.3f}×",
            str(f.evaluations),
            str(sum(f.failures.values())),
            shipped.get(f.problem, "-"),
            config_text(f.config),
        ]
        if replayed:
            row.insert(5, f"{f.fraction_of_optimum:.3f}")
        rows.append(row)
    source = "replayed from recorded landscapes" if replayed else "measured"
    terms = f"sampler {plan.sampler}, budget {plan.budget}, seed {plan.seed}"
    lines = [
        f"{device.name}, {source}: {len(findings)} tasks, {terms}",
        "",
        table_text(headers, rows, left=("problem", "space", "table", "best config")),
        "",
    ]
    if replayed:
        lines.append(f"mean fraction of the recorded optimum: {_mean_fraction(findings):.4f}")
    lines.append(f"written: {out / 'table.json'}, {out / 'inductor' / 'lookup_table.json'}, {out / 'summary.txt'}")
    return "\n".join(lines) + "\n"


def summary_record(plan: Plan, device: Device, result: Result) -> dict[str, object]:
    """The same for programs."""
    return {
        "device": device.sku,
        "sampler": plan.sampler,
        "budget": plan.budget,
        "seed": plan.seed,
        "rows": len(result.table.rows),
        "tasks": [_record(f) for f in result.findings],
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


def _mean_fraction(findings: Sequence[Finding]) -> float:
    fractions = [f.fraction_of_optimum for f in findings if f.fraction_of_optimum is not None]
    return sum(fractions) / len(fractions)
