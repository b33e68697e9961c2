"""A campaign from plan to table: which tasks it has, where its numbers come from, what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gemmtune.engine.campaign.fleet import Fleet
from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan
from gemmtune.engine.campaign.replay import ReplayFleet, landscape_of, recorded_feasible
from gemmtune.engine.campaign.scheduler import TaskSearch, Watcher, prepare, run
from gemmtune.engine.campaign.teaching import teach
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.exporter import Exporter
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.feasible import census
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscape_file import read_landscapes
from gemmtune.engine.tables.portfolio import Portfolio, choose
from gemmtune.engine.tables.ranking import rank
from gemmtune.engine.tables.select import build_table

__all__ = [
    "Finding",
    "Result",
    "completed",
    "estimated_searches",
    "execute",
    "measured_searches",
    "read_all",
    "replayed_device",
    "replayed_searches",
]

_OBJECTIVES = {"cold-l2": "latency", "warm-l2": "latency_warm"}
"""What can be minimised on recordings, by what the name of their protocol says of the cache."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a campaign found for one task."""

    problem: Problem
    """The GEMM."""
    space: str
    """The space searched."""
    config: Config | None
    """The fastest config; None when nothing was ok."""
    score: float | None
    """Its score, in the objective's unit."""
    baseline_score: float | None
    """The baseline's score on the same problem."""
    evaluations: int
    """Configs evaluated, failures included."""
    failures: Mapping[str, int]
    """Status to the number of evaluations that ended so, ok left out."""
    fraction_of_optimum: float | None
    """Recorded optimum over best found; None where the whole space is not recorded."""


@dataclass(frozen=True, slots=True)
class Result:
    """A finished campaign."""

    table: Table
    """What ships."""
    findings: tuple[Finding, ...]
    """One a task of the searched spaces, in the plan's order."""
    measurements: tuple[Measurement, ...]
    """Everything the table was built from."""
    portfolio: Portfolio | None = None
    """What serves the problems in each space; None where each was given its own best."""


def measured_searches(plan: Plan, device: Device) -> list[TaskSearch]:
    """The searches of a campaign that measures, the baseline of each problem first where it has one.

    Raises:
        UsageError: nothing to tune, or a space of the plan has nothing feasible for a problem; the message says why.
    """
    searches = []
    spaces = _spaces(plan)
    for problem in _named_problems(plan):
        for name, (space, sampler) in spaces.items():
            task = Task(problem, device, name)
            if name not in plan.spaces and not census(space, task).feasible:
                continue  # the vendor has no kernel for such a problem: the table then says so
            feasible = _feasible(space, task)
            searches.append(prepare(task, space, feasible, sampler, plan.budget, plan.seed, plan.batch, _parts(plan)))
    return searches


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
    if not problems:
        raise LandscapeError(f"nothing is recorded in space {' or '.join(plan.spaces)}; {_overview(landscapes)}")
    searches = []
    spaces, recordings = _spaces(plan), ReplayFleet(landscapes)
    for problem in problems:
        for name, (space, sampler) in spaces.items():
            task = Task(problem, device, name)
            if problem in recorded[name]:
                feasible = _recorded(task, space, landscapes)
                _check_objective(plan.objective, task, feasible, recordings)
                searches.append(
                    prepare(task, space, feasible, sampler, plan.budget, plan.seed, plan.batch, _parts(plan))
                )
            elif name in plan.spaces:
                raise LandscapeError(
                    f"{problem.name} is not recorded in space {name}, and without a GPU it cannot be measured; "
                    f"recorded: {', '.join(p.name for p in recorded[name]) or 'nothing'}"
                )
            # else somebody's landscape without a baseline: the table then says so
    return searches


def execute(
    plan: Plan, device: Device, searches: Sequence[TaskSearch], fleet: Fleet, database: Database, watcher: Watcher
) -> Result:
    """Run the searches and build the table from everything the database holds of their tasks."""
    objective = registry.objective(plan.objective)
    teach(searches, fleet, database, objective)
    run(searches, fleet, database, objective, watcher, limits=plan.limits)
    known: dict[Task, Mapping[Config, Measurement]] = {}
    finals: dict[Problem, list[Final]] = {}
    for search in searches:
        task = search.task
        known[task] = database.known(task, fleet.protocol(task), fleet.evidence, fleet.toolchain(task))
        if fleet.settles and task.problem not in finals:
            finals[task.problem] = database.finals(task.problem, device, fleet.protocol(task))
    measurements = tuple(m for of_task in known.values() for m in of_task.values())
    held = [final for of_problem in finals.values() for final in of_problem]
    rankings = rank(device, objective, measurements, BASELINE_SPACE, finals=held)
    portfolio = None
    if plan.portfolio is not None:
        portfolio = choose(rankings, plan.portfolio, margin=plan.margin, alone=_spaces_run_alone())
    table = build_table(device, plan.objective, rankings, margin=plan.margin, portfolio=portfolio)
    best = {s.task: _best(s, objective, known[s.task], finals.get(s.task.problem, ())) for s in searches}
    return Result(table, _findings(searches, fleet, best), measurements, portfolio)


def read_all(paths: Sequence[Path]) -> tuple[Landscape, ...]:
    """The landscapes of all files, in order."""
    return tuple(landscape for path in paths for landscape in read_landscapes(path))


def _spaces_run_alone() -> frozenset[str]:
    """Spaces of consumers that have no vendor library behind them: each needs a config for every problem."""
    consumed = (registry.exporter(name).spaces for name in registry.names(Exporter))
    return frozenset(space for spaces in consumed if BASELINE_SPACE not in spaces for space in spaces)


def _named_problems(plan: Plan) -> tuple[Problem, ...]:
    if not plan.problems:
        raise UsageError("no problem to tune: name one, for example --problem 2048x4096x4096:bf16:nt")
    return plan.problems


def _feasible(space: Space, task: Task) -> tuple[Config, ...]:
    count = census(space, task)
    if not count.feasible:
        why = "; ".join(dict.fromkeys(count.examples.values()))
        raise UsageError(f"space {task.space} has nothing for {task.problem.name} on {task.device.sku}: {why}")
    return count.feasible


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
    feasible = recorded_feasible(space, task, replace(landscape, points=points))
    if not feasible:
        raise LandscapeError(
            f"{landscape.source}: none of the {len(landscape.points)} configs recorded of {landscape.name} is feasible "
            f"in space {task.space} on {task.device.sku}"
        )
    return feasible


def _check_objective(name: str, task: Task, feasible: Sequence[Config], fleet: ReplayFleet) -> None:
    """Refuse an objective whose numbers are not those that were recorded."""
    objective, was = registry.objective(name), fleet.protocol(task)
    recorded, wanted = _cache(was), _cache(objective.protocol)
    if recorded and wanted and recorded != wanted:
        raise UsageError(
            f"objective {name} times with protocol {objective.protocol}, and {task.key} was recorded with {was}: "
            f"measure on a GPU, or minimise {_OBJECTIVES[recorded]}"
        )
    for config in feasible:
        fleet.submit(task, config)
        for answer in fleet.collect(0.0):
            if isinstance(answer, Measurement) and answer.status is Status.OK:
                objective.scores(answer)  # which says itself what it lacks
                return


def _cache(name: str) -> str:
    """What a protocol's name says of the cache when a launch begins; empty where it says nothing that is known here."""
    return next((cache for cache in _OBJECTIVES if cache in name), "")


_Best = tuple[Config, float] | tuple[None, None]


def _findings(searches: Sequence[TaskSearch], fleet: Fleet, best: Mapping[Task, _Best]) -> tuple[Finding, ...]:
    findings = []
    for search in searches:
        task, trials = search.task, search.tuner.trials
        if task.space == BASELINE_SPACE:
            continue
        _, baseline_score = best.get(Task(task.problem, task.device, BASELINE_SPACE), (None, None))
        config, score = best[task]
        failures: dict[str, int] = {}
        for trial in trials:
            if trial.status is not Status.OK:
                failures[trial.status.value] = failures.get(trial.status.value, 0) + 1
        fraction = None
        if isinstance(fleet, ReplayFleet):
            fraction = fleet.optimum_ns(task) / score if score else 0.0
        findings.append(
            Finding(
                problem=task.problem,
                space=task.space,
                config=config,
                score=score,
                baseline_score=baseline_score,
                evaluations=len(trials),
                failures=failures,
                fraction_of_optimum=fraction,
            )
        )
    return tuple(findings)


def _best(
    search: TaskSearch, objective: Objective, known: Mapping[Config, Measurement], finals: Sequence[Final]
) -> _Best:
    """The best config of one task that may ship, and its score: the problem's last final before the search's trials.

    As in the table, what a final refuted is out for good, and a final tells of the binaries that it timed alone.
    """
    refuted = {out.config for final in finals for out in final.refuted if out.task == search.task}
    for finalist in finals[-1].finalists if finals else ():  # the best first
        measured = known.get(finalist.config) if finalist.task == search.task else None
        if measured and measured.toolchain == finalist.toolchain and finalist.config not in refuted:
            settled = replace(measured, samples_ns=finalist.samples_ns, estimate=finalist.estimate)
            return finalist.config, objective.score(settled)
    scored = [(t.config, t.score) for t in search.tuner.trials if t.score is not None and t.config not in refuted]
    # Of like scores the one the table puts first: estimates are often alike.
    return min(scored, key=lambda trial: (trial[1], trial[0].json), default=(None, None))
