"""Report of `gemmtune space`: a space for one problem."""

from __future__ import annotations

from dataclasses import dataclass

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.prior import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import count, table_text
from gemmtune.engine.search.enumeration import EnumeratedSpace

__all__ = ["SpaceReport"]


@dataclass(frozen=True, slots=True)
class SpaceReport:
    """Params, points and rejections of a space for one task."""

    task: Task
    """Task with the space's name."""
    params: tuple[Param, ...]
    """Params of the space."""
    found: EnumeratedSpace
    """Points, feasible configs and rejections per rule."""
    seeds: tuple[Config, ...]
    """Configs that every search starts with."""
    prior: Prior
    """Times that a model expects."""

    def to_text(self, width: int | None = None) -> str:
        """Return the params, the number of points, and each rule's rejections with an example."""
        task, found, prior = self.task, self.found, self.prior
        lines = [f"{task.space} for {task.problem.name} on {task.device.name} ({task.device.arch})", ""]
        if self.params:
            rows = [[param.name, " ".join(map(str, param.values))] for param in self.params]
            lines += [table_text(["param", "values"], rows, left=("param", "values")), ""]
        lines.append(
            f"{count(found.points, 'point')}, {len(found.feasible)} feasible, {count(len(self.seeds), 'seed')}"
        )
        lines.append(f"{len(prior.times_ns)} estimated by {prior.model}" if prior.times_ns else prior.reason)
        if found.rejections:
            rows = [[rule, str(number), found.examples[rule]] for rule, number in found.rejections.items()]
            headers = ["rejected by", "points", "for example"]
            lines += ["", table_text(headers, rows, ("rejected by", "for example"), width)]
        return "\n".join(lines)

    def to_json(self) -> dict[str, object]:
        """Return the object for programs."""
        return {
            "space": self.task.space,
            "problem": self.task.problem.name,
            "device": self.task.device.sku,
            "params": {param.name: list(param.values) for param in self.params},
            "points": self.found.points,
            "feasible": len(self.found.feasible),
            "rejections": dict(self.found.rejections),
            "examples": dict(self.found.examples),
            "seeds": [dict(seed) for seed in self.seeds],
            "estimated": len(self.prior.times_ns),
            "model": self.prior.model,
            "without_estimates": self.prior.reason,
        }
