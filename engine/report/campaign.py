"""The summary of a finished campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import median_low

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding, Result
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.report.layout import bound, config_text, count, readable, readable_unit, table_text
from gemmtune.engine.report.pareto import Scored, front_record, front_text
from gemmtune.engine.report.portfolio import portfolio_record, portfolio_text
from gemmtune.engine.report.ranges import ranges_record, ranges_text
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.tables.rows import unserved

__all__ = ["summary", "summary_record"]


def summary(
    plan: Plan, device: Device, result: Result, notes: Sequence[str], written: Sequence[Path], width: int | None = None
) -> str:
    """One line a task, what the table says, and where the files are; on `width` columns, where that is given.

    Where the objective has parts, the Pareto front of each task too. What was estimated has no baseline; what was built
    stands beside it.
    """
    findings, objective = result.findings, registry.objective(plan.objective)
    unit = readable_unit(objective.unit)
    evidence = {m.evidence for m in result.measurements}
    replayed, estimated = Evidence.REPLAYED in evidence, Evidence.ESTIMATED in evidence
    ships = {row.problem: row.choices[0].space for row in result.table.rows}
    regret = {row.problem: row.regret_bound for row in result.table.rows}
    columns: dict[str, list[str]] = {"problem": [f.problem.name for f in findings]}
    if len(plan.spaces) > 1:
        columns["space"] = [f.space for f in findings]
    columns[f"{'estimated' if estimated else 'best'} {unit}"] = [readable(f.score, objective.unit) for f in findings]
    if estimated:
        columns |= _built(findings, result)
    else:
        columns[f"{BASELINE_SPACE} {unit}"] = [readable(f.baseline_score, objective.unit) for f in findings]
        columns[f"vs {BASELINE_SPACE}"] = [_lead(f) for f in findings]
    if replayed:
        columns["of optimum"] = [_share(f.fraction_of_optimum) for f in findings]
    if any(regret.get(f.problem) is not None for f in findings):
        columns["regret"] = [bound(regret.get(f.problem)) for f in findings]
    columns["evals"] = [str(f.evaluations) for f in findings]
    if any(f.failures for f in findings):
        columns["failed"] = [str(sum(f.failures.values())) for f in findings]
    columns["ships"] = [ships.get(f.problem, "-") for f in findings]
    columns["best config"] = [config_text(Task(f.problem, device, f.space), f.config) for f in findings]
    rows = list(zip(*columns.values(), strict=True))
    source = "replayed from recorded landscapes" if replayed else "measured"
    if estimated:
        source = f"built for {device.arch} and estimated, not timed"
    problems = {m.task.problem for m in result.measurements}
    lines = [
        f"{device.name}, {source}: {count(len(problems), 'problem')} in {', '.join(plan.spaces)}",
        f"sampler {result.sampler}, budget {plan.budget}, seed {plan.seed}",
        "",
        *([table_text(list(columns), rows, ("problem", "space", "ships", "best config"), width), ""] if rows else []),
    ]
    for finding in findings:
        scored = _scored(finding, objective, result)
        if scored:
            lines += [front_text(Task(finding.problem, device, finding.space), objective.parts, scored, width), ""]
    mean = _mean_fraction(findings)
    if mean is not None:
        lines.append(f"mean fraction of the recorded optimum: {mean:.4f}")
    lines += [*_racing_text(findings), _shipped(plan, result)]
    if result.portfolio is not None:
        lines.append(portfolio_text(result.portfolio, device, result.measurements))
    if result.ranges is not None and plan.ranges is not None:
        lines.append(ranges_text(result.ranges, buckets=plan.ranges.buckets))
    lines.extend(notes)
    lines += ["written:", *(f"  {path}" for path in written)]
    return "\n".join(lines) + "\n"


def summary_record(
    plan: Plan, device: Device, result: Result, notes: Sequence[str], written: Sequence[Path]
) -> dict[str, object]:
    """The same for programs."""
    objective, portfolio = registry.objective(plan.objective), result.portfolio
    fronts = [front_record(objective.parts, _scored(f, objective, result)) for f in result.findings]
    return {
        "device": device.sku,
        "objective": plan.objective,
        "unit": objective.unit,
        "sampler": result.sampler,
        "budget": plan.budget,
        "seed": plan.seed,
        "fraction_of_optimum": _mean_fraction(result.findings),
        "evidence": sorted({m.evidence.value for m in result.measurements}),
        "racing": _racing(result.findings),
        "rows": len(result.table.rows),
        "portfolio": portfolio and portfolio_record(portfolio, device, result.measurements),
        "ranges": result.ranges and ranges_record(result.ranges),
        "tasks": [_record(f) | {"front": front} for f, front in zip(result.findings, fronts, strict=True)],
        "notes": list(notes),
        "written": [str(path) for path in written],
    }


def _record(finding: Finding) -> dict[str, object]:
    return {
        "problem": finding.problem.name,
        "space": finding.space,
        "config": None if finding.config is None else dict(finding.config),
        "score": finding.score,
        "baseline_score": finding.baseline_score,
        "evaluations": finding.evaluations,
        "failures": dict(finding.failures),
        "fraction_of_optimum": finding.fraction_of_optimum,
        "stopped_early": len(finding.stopped_after),
    }


def _scored(finding: Finding, objective: Objective, result: Result) -> list[Scored]:
    """Every config of the task that was ok, with its scores; nothing for an objective without parts."""
    return [
        (m.config, objective.scores(m))
        for m in result.measurements
        if objective.parts
        and m.status is Status.OK
        and (m.task.problem, m.task.space) == (finding.problem, finding.space)
    ]


def _built(findings: Sequence[Finding], result: Result) -> dict[str, list[str]]:
    """What the build of each best config left, by column."""
    of_config = {(m.task.problem, m.task.space, m.config): m for m in result.measurements}
    best = [of_config.get((f.problem, f.space, f.config)) if f.config is not None else None for f in findings]
    resources = [m.resources if m else None for m in best]
    return {
        "registers": [str(r.registers) if r else "-" for r in resources],
        "shared B": [str(r.shared_bytes) if r else "-" for r in resources],
        "spilled B": [str(r.spill_bytes) if r else "-" for r in resources],
        "build s": [f"{m.build_seconds:.1f}" if m and m.build_seconds is not None else "-" for m in best],
    }


def _lead(finding: Finding) -> str:
    if finding.score is None or finding.baseline_score is None:
        return "-"
    return f"{finding.baseline_score / finding.score:.3f}×"


def _share(fraction: float | None) -> str:
    return "-" if fraction is None else f"{fraction:.3f}"


def _mean_fraction(findings: Sequence[Finding]) -> float | None:
    fractions = [f.fraction_of_optimum for f in findings if f.fraction_of_optimum is not None]
    return sum(fractions) / len(fractions) if fractions else None


def _racing(findings: Sequence[Finding]) -> dict[str, int] | None:
    """Configs that racing stopped early, of those that were timed; None where it stopped none."""
    launches = [number for finding in findings for number in finding.stopped_after]
    if not launches:
        return None
    timed = sum(finding.evaluations - sum(finding.failures.values()) for finding in findings)
    return {"stopped": len(launches), "timed": timed, "median_launches": median_low(launches)}


def _racing_text(findings: Sequence[Finding]) -> list[str]:
    racing = _racing(findings)
    if racing is None:
        return []
    launches = "1 launch" if racing["median_launches"] == 1 else f"{racing['median_launches']} launches"
    timed = count(racing["timed"], "config")
    return [f"racing stopped {racing['stopped']} of {timed} early, after {launches} in the median"]


def _shipped(plan: Plan, result: Result) -> str:
    """The rows by what they run; problems without a row, but for those that get none."""
    spaces = Counter(row.choices[0].space for row in result.table.rows)
    rows = ", ".join(f"{number} {space}" for space, number in sorted(spaces.items())) or "none"
    failed = [p.name for p in unserved(result.table, result.measurements) if p not in plan.held_out]
    held_out = f"; {count(len(plan.held_out), 'problem')} held out, without a row" if plan.held_out else ""
    return f"rows of the table: {rows}{held_out}" + (f"; nothing worked for {', '.join(failed)}" if failed else "")
