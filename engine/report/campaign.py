"""Summary of a finished campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_low

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.result import Finding, Result
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence, Status
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.report.layout import (
    bound,
    columns_text,
    config_text,
    count,
    json_fields,
    readable,
    readable_unit,
    speedup,
)
from gemmtune.engine.report.pareto import FrontReport
from gemmtune.engine.report.portfolio import PortfolioReport
from gemmtune.engine.report.ranges import losses_json, losses_text
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.tables.rows import unserved

__all__ = ["CampaignReport"]


@dataclass(frozen=True, slots=True)
class CampaignReport:
    """A finished campaign and the files it wrote."""

    plan: Plan
    """Plan of the campaign."""
    device: Device
    """GPU that the table is for."""
    result: Result
    """Table and findings."""
    notes: Sequence[str] = ()
    """Lines on what could not be exported."""
    written: Sequence[Path] = ()
    """Files of the campaign."""

    def to_text(self, width: int | None = None) -> str:
        """Return a line per task, the Pareto fronts, a summary of the table, and the files."""
        plan, result = self.plan, self.result
        evidence = {m.evidence for m in result.measurements}
        source = "replayed from recorded landscapes" if Evidence.REPLAYED in evidence else "measured"
        if Evidence.ESTIMATED in evidence:
            source = f"built for {self.device.arch} and estimated, not timed"
        problems = {m.task.problem for m in result.measurements}
        lines = [
            f"{self.device.name}, {source}: {count(len(problems), 'problem')} in {', '.join(plan.spaces)}",
            f"sampler {result.sampler}, budget {plan.budget}, seed {plan.seed}",
            "",
        ]
        if result.findings:
            left = ("problem", "space", "ships", "best config")
            lines += [columns_text(self._columns(evidence), left, width), ""]
        for front in self._fronts():
            if front.scored:
                lines += [front.to_text(width), ""]
        if (mean := self._mean_fraction) is not None:
            lines.append(f"mean fraction of the recorded optimum: {mean:.4f}")
        if racing := self._racing:
            launches = "1 launch" if racing["median_launches"] == 1 else f"{racing['median_launches']} launches"
            timed = count(racing["timed"], "config")
            lines.append(f"racing stopped {racing['stopped']} of {timed} early, after {launches} in the median")
        lines.append(self._rows_text())
        if result.portfolio is not None:
            lines.append(PortfolioReport(result.portfolio, self.device, result.measurements).to_text())
        if result.ranges is not None and plan.ranges is not None:
            lines.append(losses_text(result.ranges, buckets=plan.ranges.buckets))
        files = ["written:", *(f"  {path}" for path in self.written)] if self.written else []
        lines += [*self.notes, *files]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        plan, result, portfolio = self.plan, self.result, self.result.portfolio
        return {
            "device": self.device.sku,
            "objective": plan.objective,
            "unit": self._objective.unit,
            "sampler": result.sampler,
            **json_fields(plan, "budget", "seed"),
            "fraction_of_optimum": self._mean_fraction,
            "evidence": sorted({m.evidence.value for m in result.measurements}),
            "racing": self._racing,
            "rows": len(result.table.rows),
            "portfolio": portfolio and PortfolioReport(portfolio, self.device, result.measurements).to_json(),
            "ranges": result.ranges and losses_json(result.ranges),
            "tasks": [
                _finding(finding) | {"front": front.to_json()}
                for finding, front in zip(result.findings, self._fronts(), strict=True)
            ],
            "notes": list(self.notes),
            "written": [str(path) for path in self.written],
        }

    @property
    def _objective(self) -> Objective:
        return registry.objective(self.plan.objective)

    def _columns(self, evidence: set[Evidence]) -> dict[str, list[str]]:
        """Return the columns of the findings; an estimated campaign has build resources in place of a baseline."""
        findings, rows, unit = self.result.findings, self.result.table.rows, self._objective.unit
        ships = {row.problem: row.choices[0].space for row in rows}
        regret = {row.problem: row.regret_bound for row in rows}
        estimated = Evidence.ESTIMATED in evidence
        columns = {"problem": [f.problem.name for f in findings]}
        if len(self.plan.spaces) > 1:
            columns["space"] = [f.space for f in findings]
        columns[f"{'estimated' if estimated else 'best'} {readable_unit(unit)}"] = [
            readable(f.score, unit) for f in findings
        ]
        if estimated:
            columns |= self._build_columns()
        else:
            columns[f"{BASELINE_SPACE} {readable_unit(unit)}"] = [readable(f.baseline_score, unit) for f in findings]
            columns[f"vs {BASELINE_SPACE}"] = [speedup(f.baseline_score, f.score) for f in findings]
        if Evidence.REPLAYED in evidence:
            fractions = [f.fraction_of_optimum for f in findings]
            columns["of optimum"] = ["-" if fraction is None else f"{fraction:.3f}" for fraction in fractions]
        if any(regret.get(f.problem) is not None for f in findings):
            columns["regret"] = [bound(regret.get(f.problem)) for f in findings]
        columns["evals"] = [str(f.evaluations) for f in findings]
        if any(f.failures for f in findings):
            columns["failed"] = [str(sum(f.failures.values())) for f in findings]
        columns["ships"] = [ships.get(f.problem, "-") for f in findings]
        columns["best config"] = [config_text(Task(f.problem, self.device, f.space), f.config) for f in findings]
        return columns

    def _build_columns(self) -> dict[str, list[str]]:
        """Return the columns of registers, shared memory, spills and build seconds of each best config."""
        built = {(m.task.problem, m.task.space, m.config): m for m in self.result.measurements}
        best = [
            built.get((f.problem, f.space, f.config)) if f.config is not None else None for f in self.result.findings
        ]
        resources = [m.resources if m else None for m in best]
        return {
            "registers": [str(r.registers) if r else "-" for r in resources],
            "shared B": [str(r.shared_bytes) if r else "-" for r in resources],
            "spilled B": [str(r.spill_bytes) if r else "-" for r in resources],
            "build s": [f"{m.build_seconds:.1f}" if m and m.build_seconds is not None else "-" for m in best],
        }

    def _fronts(self) -> list[FrontReport]:
        """Return the Pareto front per finding; without configs unless the objective has parts."""
        objective, measurements = self._objective, self.result.measurements
        return [
            FrontReport(
                Task(finding.problem, self.device, finding.space),
                objective.parts,
                [
                    (m.config, objective.scores(m))
                    for m in measurements
                    if objective.parts
                    and m.status is Status.OK
                    and (m.task.problem, m.task.space) == (finding.problem, finding.space)
                ],
            )
            for finding in self.result.findings
        ]

    @property
    def _mean_fraction(self) -> float | None:
        fractions = [f.fraction_of_optimum for f in self.result.findings if f.fraction_of_optimum is not None]
        return sum(fractions) / len(fractions) if fractions else None

    @property
    def _racing(self) -> dict[str, int] | None:
        """Configs that racing stopped early, of those that were timed; None where it stopped none."""
        launches = [number for finding in self.result.findings for number in finding.stopped_after]
        if not launches:
            return None
        timed = sum(finding.evaluations - sum(finding.failures.values()) for finding in self.result.findings)
        return {"stopped": len(launches), "timed": timed, "median_launches": median_low(launches)}

    def _rows_text(self) -> str:
        """Return the number of rows per space, the held-out problems, and problems for which nothing worked."""
        table, held_out = self.result.table, self.plan.held_out
        spaces = Counter(row.choices[0].space for row in table.rows)
        text = f"rows of the table: {', '.join(f'{n} {space}' for space, n in sorted(spaces.items())) or 'none'}"
        if held_out:
            text += f"; {count(len(held_out), 'problem')} held out, without a row"
        failed = [p.name for p in unserved(table, self.result.measurements) if p not in held_out]
        return text + (f"; nothing worked for {', '.join(failed)}" if failed else "")


def _finding(finding: Finding) -> dict[str, object]:
    scores = ("score", "baseline_score", "evaluations", "failures", "fraction_of_optimum")
    fields = json_fields(finding, "problem", "space", "config", *scores)
    return fields | {"stopped_early": len(finding.stopped_after)}
