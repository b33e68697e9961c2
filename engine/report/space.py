"""Report of `gemmtune space`: a space for one problem."""

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.report.layout import Grid, Report, count
from gemmtune.engine.search.enumeration import EnumeratedSpace


def space_report(
    task: Task, params: tuple[Param, ...], found: EnumeratedSpace, seeds: tuple[Config, ...], prior: Prior
) -> Report:
    """Report the params, the number of points, each rule's rejections with an example, and a model's estimates."""
    estimates = f"{len(prior.times_ns)} estimated by {prior.model}" if prior.times_ns else prior.reason
    points = f"{count(found.points, 'point')}, {len(found.feasible)} feasible, {count(len(seeds), 'seed')}"
    columns = {"param": [p.name for p in params], "values": [" ".join(map(str, p.values)) for p in params]}
    rejections = {
        "rejected by": list(found.rejections),
        "points": [str(number) for number in found.rejections.values()],
        "for example": [found.examples[rule] for rule in found.rejections],
    }
    sections: list[str | Grid] = [
        f"{task.space} for {task.problem.name} on {task.device.name} ({task.device.arch})",
        *([Grid(columns, ("param", "values"))] if params else []),
        f"{points}\n{estimates}",
        *([Grid(rejections, ("rejected by", "for example"))] if found.rejections else []),
    ]
    record = {
        "space": task.space,
        "problem": task.problem,
        "device": task.device.sku,
        "params": {param.name: param.values for param in params},
        "points": found.points,
        "feasible": len(found.feasible),
        "rejections": found.rejections,
        "examples": found.examples,
        "seeds": seeds,
        "estimated": len(prior.times_ns),
        "model": prior.model,
        "without_estimates": prior.reason,
    }
    return Report(record, sections)
