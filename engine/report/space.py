"""Reports of a space for one problem, as `gemmtune list` describes it, and of what `gemmtune check` built."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

from gemmtune.engine.execution.dry_build import DryBuild
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.search import Prior
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.report.layout import Grid, Report, config_text, count
from gemmtune.engine.seams.workload import DryLaunch
from gemmtune.engine.search.enumeration import EnumeratedSpace


def space_report(
    task: Task, params: tuple[Param, ...], found: EnumeratedSpace, seeds: tuple[Config, ...], prior: Prior
) -> Report:
    """Report the params, the points that were checked, each rule's rejections with an example, and estimates."""
    estimates = f"{len(prior.times_ns)} estimated by {prior.model}" if prior.times_ns else prior.reason
    points = count(found.points, "point") if found.points == found.size else f"{found.points} of {found.size} points"
    points = f"{points}, {len(found.feasible)} feasible, {count(len(seeds), 'seed')}"
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
        "size": found.size,
        "feasible": len(found.feasible),
        "rejections": found.rejections,
        "examples": found.examples,
        "seeds": seeds,
        "estimated": len(prior.times_ns),
        "model": prior.model,
        "without_estimates": prior.reason,
    }
    return Report(record, sections)


def check_report(
    device: Device, builds: Sequence[DryBuild], launches: Mapping[Workload, DryLaunch], *, holds: bool
) -> Report:
    """Report what was built without a GPU, and what the user's program launches with a table of it."""
    sections: list[str | Grid] = [f"on {device.name} ({device.arch}), without a GPU"]
    built = [_build_record(build) for build in builds]
    facts = ("registers", "shared_bytes", "spill_bytes")
    names = [build.task.problem.name for build in builds]
    columns = {
        "problem": [name if name != before else "" for before, name in pairwise(["", *names])],
        "config": [_config_words(build) for build in builds],
        **{name.replace("_bytes", " B"): [_cell(each[name]) for each in built] for name in facts},
        "build s": [_cell(each["build_seconds"]) for each in built],
        "result": [build.reason or "ok" for build in builds],
    }
    sections.append(Grid(columns, ("problem", "config", "result")))
    if launches:
        tasks = [Task(problem, device, problem.searched_space) for problem in launches]
        columns = {
            "problem": [problem.name for problem in launches],
            "launch": ["miss" if launch.reason else "hit" for launch in launches.values()],
            "runs": [config_text(task, launch.config) for task, launch in zip(tasks, launches.values(), strict=True)],
            "result": [launch.reason or "ok" for launch in launches.values()],
        }
        sections.append(Grid(columns, tuple(columns)))
    launched = [
        {"problem": problem, "hit": not launch.reason, "config": launch.config, "reason": launch.reason}
        for problem, launch in launches.items()
    ]
    return Report({"device": device.sku, "holds": holds, "builds": built, "launches": launched}, sections)


def _build_record(build: DryBuild) -> dict[str, object]:
    """Return the facts of a build for programs; None where there is none."""
    result = build.result
    needs = result.resources if isinstance(result, Artifact) else None
    return {
        "problem": build.task.problem,
        "space": build.task.space,
        "config": build.config,
        **{name: getattr(needs, name, None) for name in ("registers", "shared_bytes", "spill_bytes", "threads")},
        "build_seconds": result.build_seconds,
        "reason": build.reason,
    }


def _config_words(build: DryBuild) -> str:
    """Return a config as text, that of the default with what it stands for."""
    problem = build.task.problem
    if not build.task.is_baseline:
        return config_text(build.task, build.config)
    searched = Task(problem, build.task.device, problem.searched_space)
    return f"default {config_text(searched, problem.untuned_config or build.config)}".rstrip()


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.1f}" if isinstance(value, float) else str(value)
