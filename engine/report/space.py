"""What `gemmtune space` prints: a space as one problem sees it."""

from __future__ import annotations

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.prior import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import count, table_text
from gemmtune.engine.search.enumeration import EnumeratedSpace

__all__ = ["space", "space_record"]


def space(
    task: Task,
    params: tuple[Param, ...],
    found: EnumeratedSpace,
    seeds: tuple[Config, ...],
    prior: Prior,
    width: int | None = None,
) -> str:
    """The parameters, the points, what a model expects, and each rule's rejections with an example."""
    lines = [f"{task.space} for {task.problem.name} on {task.device.name} ({task.device.arch})", ""]
    if params:
        lines += [table_text(["param", "values"], [[p.name, _values(p)] for p in params], left=("param", "values")), ""]
    lines.append(f"{count(found.points, 'point')}, {len(found.feasible)} feasible, {count(len(seeds), 'seed')}")
    lines.append(f"{len(prior.times_ns)} estimated by {prior.model}" if prior.times_ns else prior.reason)
    if found.rejections:
        rows = [[rule, str(number), found.examples[rule]] for rule, number in found.rejections.items()]
        lines += ["", table_text(["rejected by", "points", "for example"], rows, ("rejected by", "for example"), width)]
    return "\n".join(lines)


def space_record(
    task: Task, params: tuple[Param, ...], found: EnumeratedSpace, seeds: tuple[Config, ...], prior: Prior
) -> dict[str, object]:
    """The same for programs."""
    return {
        "space": task.space,
        "problem": task.problem.name,
        "device": task.device.sku,
        "params": {param.name: list(param.values) for param in params},
        "points": found.points,
        "feasible": len(found.feasible),
        "rejections": dict(found.rejections),
        "examples": dict(found.examples),
        "seeds": [dict(seed) for seed in seeds],
        "estimated": len(prior.times_ns),
        "model": prior.model,
        "without_estimates": prior.reason,
    }


def _values(param: Param) -> str:
    return " ".join(str(value) for value in param.values)
