"""A campaign from plan to table: which tasks it has, where its numbers come from, what it found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from gemmtune.engine.campaign.crossing import crossings
from gemmtune.engine.campaign.finished import Asked
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.probing import probe_searches, probes
from gemmtune.engine.campaign.result import Result, read_rankings, read_result
from gemmtune.engine.campaign.spotting import check_searches, spot_searches, spots
from gemmtune.engine.execution.replay import ReplayExecutor, landscape_of, recorded_feasible
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.scheduler import run
from gemmtune.engine.scheduling.task_history import teach
from gemmtune.engine.scheduling.task_search import TaskSearch, prepare
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import enumerate_space, feasible_configs
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes
from gemmtune.engine.tables.ranking import Ranking

__all__ = [
    "completed",
    "estimated_searches",
    "execute",
    "measured_searches",
    "read_all",
    "replayed_device",
    "replayed_searches",
    "unserved",
]

_OBJECTIVES = {"cold-l2": "latency", "warm-l2": "latency_warm"}
"""What can be minimised on recordings, by what the name of their protocol says of the cache."""


def measured_searches(plan: Plan, device: Device) -> list[TaskSearch]:
    """The searches of a campaign that measures, the baseline of each problem first where it has one.

    Each problem is searched in those spaces of the plan that have anything for it. One that the vendor has no kernel
    for has no baseline: the table then says so.

    Raises:
        UsageError: nothing to tune, or no space of the plan has anything feasible for a problem; the message says why.
    """
    searches = []
    spaces, parts = _spaces(plan), _parts(plan)
    for problem in _named_problems(plan):
        tasks = {name: Task(problem, device, name) for name in spaces}
        served = {
            name: found for name, (space, _) in spaces.items() if (found := _any(feasible_configs(space, tasks[name])))
        }
        if not any(name in served for name in plan.spaces):
            raise UsageError("; ".join(_nothing(spaces[name][0], tasks[name]) for name in dict.fromkeys(plan.spaces)))
        for name, configs in served.items():
            space, sampler = spaces[name]
            searches.append(prepare(tasks[name], space, configs, sampler, plan.budget, plan.seed, plan.batch, parts))
    return searches


def unserved(plan: Plan, searches: Sequence[TaskSearch]) -> Iterator[str]:
    """What a person should know of problems that are not searched in every space of the plan: how many, and why one."""
    problems = {search.task.problem: search.task.device for search in searches}
    for name in dict.fromkeys(plan.spaces):
        served = {search.task.problem for search in searches if search.task.space == name}
        if absent := [problem for problem in problems if problem not in served]:
            why = _nothing(registry.space(name), Task(absent[0], problems[absent[0]], name))
            yield f"{len(absent)} of {len(problems)} problems are not searched in {name}: {why}"


def estimated_searches(plan: Plan, device: Device) -> list[TaskSearch]:
    """The searches of a campaign on paper: without the baseline, of which there is no estimate.

    Every estimate is known beforehand, so that there is nothing to search: the sampler takes the plan's budget of
    configs, the best estimate first.

    Raises:
        UsageError: nothing to tune, a space has no estimate of a feasible config, or the spaces have several models;
            the message says why.
        ToolchainMissing: a space cannot build here.
    """
    if protocol(registry.objective(plan.objective).protocol).energy:
        raise UsageError(f"objective {plan.objective} needs energy, which no model estimates: minimise latency")
    sampler = registry.sampler("exhaustive")
    spaces = {name: registry.space(name) for name in dict.fromkeys(plan.spaces)}
    searches, models = [], dict[str, str]()
    for problem in _named_problems(plan):
        for name, space in spaces.items():
            space.toolchain()
            task = Task(problem, device, name)
            prior = space.prior(task)
            known = sorted((c for c in _feasible(space, task) if c in prior.times_ns), key=prior.times_ns.__getitem__)
            if not known:
                raise UsageError(f"space {name} has no estimate for {problem.name} on {device.sku}: {prior.reason}")
            models[prior.model] = name
            searches.append(prepare(task, space, tuple(known), sampler, plan.budget, plan.seed, plan.batch))
    if len(models) > 1:
        raise UsageError(f"{' and '.join(models.values())} have models of their own, not to be compared: tune one")
    return searches


def completed(landscapes: Sequence[Landscape], plan: Plan, device: Device | None) -> tuple[Landscape, ...]:
    """The landscapes, with what their files leave open: the device, if one is asked for, and the space searched.

    Raises:
        LandscapeError: a landscape names no space, and the plan searches several.
    """
    unsaid = {"space": plan.spaces[0]} | ({"device": device.sku} if device else {})
    for landscape in landscapes:
        if "space" not in landscape.context and len(plan.spaces) > 1:
            spaces = " and ".join(plan.spaces)
            raise LandscapeError(f"{landscape.source} has no column task.space: search one space, not {spaces}")
    return tuple(replace(landscape, context=unsaid | dict(landscape.context)) for landscape in landscapes)


def replayed_device(landscapes: Sequence[Landscape]) -> Device:
    """The one device the landscapes were recorded on.

    Raises:
        LandscapeError: a landscape names no problem or no device, or they name several devices.
        DeviceError: the catalogue does not know the device.
    """
    for landscape in landscapes:
        if landscape.problem is None:
            raise LandscapeError(
                f"{landscape.source} names no GEMM problem to tune for (columns problem.m, problem.n, problem.k); "
                f"to measure samplers on it: gemmtune replay {landscape.source}"
            )
        if "device" not in landscape.context:
            raise LandscapeError(f"{landscape.source} has no column task.device: name the device with --device")
    found = sorted({landscape.context["device"] for landscape in landscapes})
    if len(found) != 1:
        raise LandscapeError(
            f"the landscapes are of {len(found)} devices ({', '.join(found)}): replay one device at a time"
        )
    return catalogue.device(found[0])


def replayed_searches(plan: Plan, device: Device, landscapes: Sequence[Landscape]) -> list[TaskSearch]:
    """The searches of a campaign that replays: the plan's problems, or every recorded one.

    Raises:
        LandscapeError: a problem is not recorded in a space (the message lists those that are), or nothing recorded
            of it is feasible there.
        UsageError: what was recorded is not what the objective minimises: other cache terms, or no energy.
    """
    recorded = {name: _problems(landscapes, name) for name in (BASELINE_SPACE, *plan.spaces)}
    problems = plan.problems or tuple(dict.fromkeys(p for name in plan.spaces for p in recorded[name]))
    problems += plan.held_out
    if not problems:
        raise LandscapeError(f"nothing is recorded in space {' or '.join(plan.spaces)}; {_overview(landscapes)}")
    searches = []
    spaces, parts, recordings = _spaces(plan), _parts(plan), ReplayExecutor(landscapes)
    for problem in problems:
        for name, (space, sampler) in spaces.items():
            task = Task(problem, device, name)
            if problem in recorded[name]:
                configs = _recorded(task, space, landscapes)
                _check_objective(plan.objective, task, configs, recordings)
                searches.append(prepare(task, space, configs, sampler, plan.budget, plan.seed, plan.batch, parts))
            elif name in plan.spaces:
                raise LandscapeError(
                    f"{problem.name} is not recorded in space {name}, and without a GPU it cannot be measured; "
                    f"recorded: {', '.join(p.name for p in recorded[name]) or 'nothing'}"
                )
            # else somebody's landscape without a baseline: the table then says so
    return searches


def execute(
    plan: Plan,
    device: Device,
    searches: Sequence[TaskSearch],
    executor: Executor,
    database: Database,
    callbacks: Sequence[Callback],
    kept: Path | None = None,
) -> Result:
    """Run the searches and build the table from everything the database holds of their tasks.

    With a file to keep what they asked, a campaign that it says is finished is not searched again. Where the plan asks
    for ranges of m, a second round measures what they need besides, at probes and spots only if the executor measures.
    """
    objective = registry.objective(plan.objective)
    for notice in unserved(plan, searches):
        notify(callbacks, notice)
    asked = Asked(kept, plan, searches, executor) if kept else None
    again = asked.again(database) if asked else None
    searches = again or searches
    if again is None:
        sizes = _sizes(searches)
        teach(searches, executor, database, objective, apart={*probes(sizes), *spots(sizes)} if plan.ranges else ())
    # Of a finished campaign the second round has measured more at each problem: that calls for no final of its own.
    settle = again is None or plan.ranges is None
    run(searches, executor, database, objective, callbacks, limits=plan.limits, settle=settle)
    if asked and again is None:
        asked.keep()
    probed: list[TaskSearch] = []
    spotted: list[TaskSearch] = []
    if plan.ranges is not None:

        def found(of: Sequence[TaskSearch]) -> Iterator[Ranking]:
            return read_rankings(plan, device, of, executor, database)

        def measure(more: Sequence[TaskSearch]) -> None:
            run(more, executor, database, objective, callbacks, settle=False)

        measure(crossings(plan, searches, found(searches)))
        if executor.evidence is Evidence.MEASURED:
            probed = probe_searches(plan, searches, found(searches))
            measure(probed)
            spotted = spot_searches(plan, searches, (*found(searches), *found(probed)), _sizes(probed))
            measure(spotted)
        if plan.held_out:
            rankings = (*found(searches), *found(probed), *found(spotted))
            measure(check_searches(plan, searches, rankings, _sizes(probed), _sizes(spotted)))
    return read_result(plan, device, searches, executor, database, probed, spotted)


def read_all(paths: Sequence[Path]) -> tuple[Landscape, ...]:
    """The landscapes of all files, in order."""
    return tuple(landscape for path in paths for landscape in read_landscapes(path))


def _sizes(searches: Iterable[TaskSearch]) -> set[Problem]:
    return {search.task.problem for search in searches}


def _named_problems(plan: Plan) -> tuple[Problem, ...]:
    if not plan.problems:
        raise UsageError("no problem to tune: name one, for example --problem 2048x4096x4096:bf16:nt")
    return (*plan.problems, *plan.held_out)


def _feasible(space: Space, task: Task) -> Iterator[Config]:
    if configs := _any(feasible_configs(space, task)):
        return configs
    raise UsageError(_nothing(space, task))


def _any(configs: Iterator[Config]) -> Iterator[Config] | None:
    """All of them, if there are any."""
    first = next(configs, None)
    return None if first is None else chain([first], configs)


def _nothing(space: Space, task: Task) -> str:
    why = "; ".join(dict.fromkeys(enumerate_space(space, task).examples.values()))
    return f"space {task.space} has nothing for {task.problem.name} on {task.device.sku}: {why}"


def _parts(plan: Plan) -> int:
    """Scores a trial has."""
    return max(1, len(registry.objective(plan.objective).parts))


def _spaces(plan: Plan) -> dict[str, tuple[Space, type[Sampler]]]:
    """Every space of the plan with its sampler, the baseline first: of its one config there is nothing to search."""
    names = dict.fromkeys((BASELINE_SPACE, *plan.spaces))
    samplers = {name: "exhaustive" if name == BASELINE_SPACE else plan.sampler for name in names}
    return {name: (registry.space(name), registry.sampler(sampler)) for name, sampler in samplers.items()}


def _problems(landscapes: Sequence[Landscape], space: str) -> tuple[Problem, ...]:
    return tuple(x.problem for x in landscapes if x.problem is not None and x.context["space"] == space)


def _overview(landscapes: Sequence[Landscape]) -> str:
    spaces = sorted({landscape.context["space"] for landscape in landscapes})
    return f"recorded: {', '.join(spaces) or 'nothing'}"


def _recorded(task: Task, space: Space, landscapes: Sequence[Landscape]) -> tuple[Config, ...]:
    """The recorded configs that may be asked for: points of the space that pass its check."""
    landscape = landscape_of(task, landscapes)
    params = {param.name: param.values for param in space.params(task)}
    recorded = {param.name for param in landscape.params}
    if recorded != set(params):
        raise LandscapeError(
            f"{landscape.source}: {landscape.name} has the parameters {', '.join(sorted(recorded)) or 'none'}, "
            f"space {task.space} has {', '.join(sorted(params)) or 'none'}; name its space in a column task.space"
        )
    points = {c: p for c, p in landscape.points.items() if all(c[name] in values for name, values in params.items())}
    configs = recorded_feasible(space, task, replace(landscape, points=points))
    if not configs:
        raise LandscapeError(
            f"{landscape.source}: none of the {len(landscape.points)} configs recorded of {landscape.name} is feasible "
            f"in space {task.space} on {task.device.sku}"
        )
    return configs


def _check_objective(name: str, task: Task, configs: Sequence[Config], executor: ReplayExecutor) -> None:
    """Refuse an objective whose numbers are not those that were recorded."""
    objective, was = registry.objective(name), executor.protocol(task)
    recorded, wanted = _cache(was), _cache(objective.protocol)
    if recorded and wanted and recorded != wanted:
        raise UsageError(
            f"objective {name} times with protocol {objective.protocol}, and {task.key} was recorded with {was}: "
            f"measure on a GPU, or minimise {_OBJECTIVES[recorded]}"
        )
    for config in configs:
        executor.submit(task, config)
        for answer in executor.collect(0.0):
            if isinstance(answer, Measurement) and answer.status is Status.OK:
                objective.scores(answer)  # which says itself what it lacks
                return


def _cache(name: str) -> str:
    """What a protocol's name says of the cache when a launch begins; empty where it says nothing that is known here."""
    return next((cache for cache in _OBJECTIVES if cache in name), "")
