"""Summary of a finished campaign."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding, Result
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.table import Row
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload, baseline_name, baseline_words
from gemmtune.engine.report.layout import (
    Grid,
    Report,
    bound,
    config_text,
    count,
    doubted,
    json_fields,
    lead_of,
    lead_text,
    left_out,
    readable,
    readable_unit,
    tally,
)
from gemmtune.engine.report.losses import portfolio_report, ranges_json, ranges_text
from gemmtune.engine.report.pareto import Scored, front_json, front_sections
from gemmtune.engine.report.tables import earlier_json, earlier_notes
from gemmtune.engine.report.why import Why, legend, why
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.tables.earlier import EarlierRow, Fate
from gemmtune.engine.tables.rows import unserved


def campaign_report(
    plan: Plan,
    device: Device,
    result: Result,
    notes: Sequence[str] = (),
    written: Sequence[Path] = (),
    earlier: Sequence[EarlierRow] = (),
) -> Report:
    """Report each task, the Pareto fronts of an objective with parts, the table, and the files.

    `notes` are lines on what could not be exported, `written` the files of the campaign, `earlier` the rows of the
    folder's earlier table.
    """
    objective, findings = plan.plugins.objective, result.findings
    evidence = {m.evidence for m in result.measurements}
    lost = [m for m in result.measurements if m.task.is_baseline and m.status is not Status.OK]
    fractions = [f.fraction_of_optimum for f in findings if f.fraction_of_optimum is not None]
    mean = sum(fractions) / len(fractions) if fractions else None
    stopped = sum(finding.stopped_early for finding in findings)
    portfolio = None if result.portfolio is None else portfolio_report(result.portfolio)
    scored_by_task = _scored_by_task(objective, result)
    scored = [scored_by_task.get((finding.problem, finding.space), []) for finding in findings]
    record = {
        "device": device.sku,
        "objective": plan.objective,
        "unit": objective.unit,
        "sampler": result.sampler,
        **json_fields(plan, "budget", "seed"),
        "fraction_of_optimum": mean,
        "evidence": sorted(each.value for each in evidence),
        "stopped_early": stopped,
        "rows": len(result.table.rows),
        "portfolio": portfolio and portfolio.to_json(),
        "ranges": result.ranges and ranges_json(result.ranges),
        "tasks": [
            _finding_json(finding) | {"front": front_json(objective.parts, of)}
            for finding, of in zip(findings, scored, strict=True)
        ],
        "damaged": result.damaged,
        "boards": result.boards,
        "failed_baselines": [{"problem": m.task.problem, "status": m.status, "reason": m.reason} for m in lost],
        "earlier": earlier_json(earlier),
        "notes": notes,
        "written": [str(path) for path in written],
    }
    source = "replayed from recorded landscapes" if Evidence.REPLAYED in evidence else "measured"
    if Evidence.ESTIMATED in evidence:
        source = f"built for {device.arch} and estimated, not timed"
    problems = {m.task.problem for m in result.measurements}
    title = f"{device.name}, {source}: {count(len(problems), 'problem')} in {', '.join(plan.spaces)}"
    sections: list[str | Grid] = [f"{title}\nsampler {result.sampler}, budget {plan.budget}, seed {plan.seed}"]
    if findings:
        reasons = _reasons(plan, result, earlier)
        columns = _columns(plan, device, result, objective, reasons)
        sections.append(Grid(columns, ("problem", "space", "ships", "why", "found by", "best config")))
        shown = {f.problem: reasons[f.problem] for f in findings if f.problem in reasons}
        sections += [legend(shown.values(), baseline_words(shown))] if shown else []
    for finding, of in zip(findings, scored, strict=True):
        if of:
            sections += front_sections(Task(finding.problem, device, finding.space), objective.parts, of)
    lines = [] if mean is None else [f"mean fraction of the recorded optimum: {mean:.4f}"]
    if stopped:
        timed = sum(finding.evaluations - sum(finding.failures.values()) for finding in findings)
        lines.append(f"screening stopped {stopped} of {count(timed, 'config')} early")
    if others := sum(not finding.found_here for finding in findings):
        best = f"{others} of {count(len(findings), 'best config')}"
        by = "for the ranges, or by other campaigns" if plan.ranges else "by other campaigns"
        lines.append(f"{best} {'was' if others == 1 else 'were'} found {by} that share the database")
    lines.append(_rows_text(plan, result))
    if result.table.batch_invariant:
        lines.append("loss: what equal bits cost: the row's config (gemmtune show) is slower by it than the best one")
    if portfolio is not None:
        lines.append(portfolio.to_text())
    if result.ranges is not None:
        lines.append(ranges_text(result.ranges))
    if lost:
        first = f"{lost[0].task.problem.name}: {lost[0].status}, {lost[0].reason}"
        lines.append(
            f"{count(len(lost), 'baseline')} failed, and the rows ship without a comparison. The first: {first}"
        )
    lines += [*doubted(result.boards), *left_out(result.damaged)]
    lines += [*earlier_notes(earlier, {each.problem for each in findings}), *notes]
    if written:
        lines += ["written:", *(f"  {path}" for path in written)]
    return Report(record, [*sections, "\n".join(lines)])


def _columns(
    plan: Plan, device: Device, result: Result, objective: Objective, reasons: dict[Workload, Why]
) -> dict[str, list[str]]:
    """Return the columns of the findings; an estimated campaign has build resources in place of a baseline."""
    findings, rows, unit = result.findings, result.table.rows, readable_unit(objective.unit)
    ships = {row.problem: row.choices[0].space for row in rows}
    regret = {row.problem: row.regret_bound for row in rows}
    evidence = {measurement.evidence for measurement in result.measurements}
    estimated = Evidence.ESTIMATED in evidence
    columns = {"problem": [f.problem.name for f in findings]}
    if len(plan.spaces) > 1:
        columns["space"] = [f.space for f in findings]
    columns[f"{'estimated' if estimated else 'best'} {unit}"] = [readable(f.score, objective.unit) for f in findings]
    if estimated:
        columns |= _build_columns(result)
    else:
        baseline = baseline_name(f.problem for f in findings)
        columns[f"{baseline} {unit}"] = [readable(f.baseline_score, objective.unit) for f in findings]
        columns["lead"] = [lead_text(lead_of(f.baseline_score, f.score)) for f in findings]
    if Evidence.REPLAYED in evidence:
        fractions = [f.fraction_of_optimum for f in findings]
        columns["of optimum"] = ["-" if fraction is None else f"{fraction:.3f}" for fraction in fractions]
    if any(regret.get(f.problem) is not None for f in findings):
        columns["regret"] = [bound(regret.get(f.problem)) for f in findings]
    columns["evals"] = [str(f.evaluations) for f in findings]
    rejected = [f.failures.get(Status.INVALID.value, 0) for f in findings]
    failed = [sum(f.failures.values()) - number for f, number in zip(findings, rejected, strict=True)]
    for name, numbers in {"failed": failed, "rejected": rejected}.items():
        if any(numbers):
            columns[name] = list(map(str, numbers))
    columns["ships"] = [ships.get(f.problem, "-") for f in findings]
    if reasons:
        columns["why"] = [str(reasons.get(f.problem, "-")) for f in findings]
    if result.table.batch_invariant:
        loss = {row.problem: f"{row.loss:.1%}" for row in rows}
        columns["loss"] = [loss.get(f.problem, "-") for f in findings]
    if not all(f.found_here for f in findings):
        columns["found by"] = ["this search" if f.found_here else "another" for f in findings]
    columns["best config"] = [config_text(Task(f.problem, device, f.space), f.config) for f in findings]
    return columns


def _reasons(plan: Plan, result: Result, earlier: Sequence[EarlierRow]) -> dict[Workload, Why]:
    """Return why each row ships what it ships; nothing for estimates, which no baseline was timed for."""
    if any(m.evidence is Evidence.ESTIMATED for m in result.measurements):
        return {}
    kept = {e.before.problem for e in earlier if isinstance(e.before, Row) and e.fate is Fate.KEPT and e.now}
    return {row.problem: Why.KEPT if row.problem in kept else why(row, plan.margin) for row in result.table.rows}


def _build_columns(result: Result) -> dict[str, list[str]]:
    """Return the columns of registers, shared memory, spills and build seconds of each best config."""
    built = {(m.task.problem, m.task.space, m.config): m for m in result.measurements}
    best = [None if f.config is None else built.get((f.problem, f.space, f.config)) for f in result.findings]
    resources = [m.resources if m else None for m in best]
    return {
        "registers": [str(r.registers) if r else "-" for r in resources],
        "shared B": [str(r.shared_bytes) if r else "-" for r in resources],
        "spilled B": [str(r.spill_bytes) if r else "-" for r in resources],
        "build s": [f"{m.build_seconds:.1f}" if m and m.build_seconds is not None else "-" for m in best],
    }


def _scored_by_task(objective: Objective, result: Result) -> dict[tuple[Workload, str], list[Scored]]:
    """Return the ok configs of each task with their scores; nothing for an objective without parts."""
    found: dict[tuple[Workload, str], list[Scored]] = {}
    for m in result.measurements if objective.parts else ():
        if m.status is Status.OK:
            found.setdefault((m.task.problem, m.task.space), []).append((m.config, objective.scores(m)))
    return found


def _rows_text(plan: Plan, result: Result) -> str:
    """Return the number of rows per space, the held-out problems, and problems for which nothing worked."""
    spaces = Counter(row.choices[0].space for row in result.table.rows)
    text = f"rows of the table: {tally(dict(sorted(spaces.items()))) or 'none'}"
    if plan.held_out:
        text += f"; {count(len(plan.held_out), 'problem')} held out, without a row"
    failed = [p.name for p in unserved(result.table, result.measurements) if p not in plan.held_out]
    return text + (f"; nothing worked for {', '.join(failed)}" if failed else "")


def _finding_json(finding: Finding) -> dict[str, object]:
    scores = ("score", "baseline_score", "evaluations", "failures", "fraction_of_optimum")
    lead = {"lead": lead_of(finding.baseline_score, finding.score)}
    return json_fields(finding, "problem", "space", "config", *scores, "stopped_early", "found_here") | lead
