"""A campaign from plan to table: which tasks it has, where its numbers come from, what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gemmtune.engine.campaign.fleet import Fleet
from gemmtune.engine.campaign.plan import BASELINE_SPACE, Plan
from gemmtune.engine.campaign.replay import ReplayFleet, landscape_of, recorded_feasible
from gemmtune.engine.campaign.scheduler import TaskSearch, Watcher, prepare, run
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.table import Table
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.feasible import census
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscape_file import read_landscapes
from gemmtune.engine.tables.select import build_table

__all__ = ["Finding", "Result", "execute", "measured_searches", "replayed_device", "replayed_searches"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a campaign found for one task."""

    problem: Problem
    """The GEMM."""
    space: str
    """The space searched."""
    config: Config | None
    """The fastest config; None when nothing was ok."""
    time_ns: float | None
    """Its score."""
    baseline_ns: float | None
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


def measured_searches(plan: Plan, device: Device) -> list[TaskSearch]:
    """The searches of a campaign that measures, the baseline of each problem first.

    Raises:
        UsageError: nothing to tune, or a space has nothing feasible for a problem; the message says why.
    """
    if not plan.problems:
        raise UsageError("no problem to tune: name one, for example --problem 2048x4096x4096:bf16:nt")
    searches = []
    for problem in plan.problems:
        for name in _spaces(plan):
            space, task = registry.space(name), Task(problem, device, name)
            count = census(space, task)
            if not count.feasible:
                why = "; ".join(dict.fromkeys(count.examples.values()))
                raise UsageError(f"space {name} has nothing for {problem.name} on {device.sku}: {why}")
            searches.append(_search(plan, task, count.feasible))
    return searches


def replayed_device(landscapes: Sequence[Landscape]) -> Device:
    """The one device the landscapes were recorded on.

    Raises:
        LandscapeError: a landscape names no device, or they name several.
    """
    for landscape in landscapes:
        if "device" not in landscape.context or landscape.problem is None:
            raise LandscapeError(
                f"{landscape.source} names no GEMM problem and device to tune for; "
                f"to measure samplers on it: gemmtune replay {landscape.source}"
            )
    found = sorted({landscape.context["device"] for landscape in landscapes})
    if len(found) != 1:
        raise LandscapeError(
            f"the landscapes are of {len(found)} devices ({', '.join(found)}): replay one device at a time"
        )
    return catalogue.device(found[0])


def replayed_searches(plan: Plan, device: Device, landscapes: Sequence[Landscape]) -> list[TaskSearch]:
    """The searches of a campaign that replays: the plan's problems, or every recorded one.

    Raises:
        LandscapeError: a problem is not recorded; the message lists those that are.
    """
    recorded = [p for space in plan.spaces for p in _problems(landscapes, space)]
    searches = []
    for problem in plan.problems or tuple(dict.fromkeys(recorded)):
        for name in _spaces(plan):
            task = Task(problem, device, name)
            if name == BASELINE_SPACE and problem not in _problems(landscapes, name):
                continue  # somebody's landscape without a baseline: the table then says so
            if problem not in _problems(landscapes, name):
                raise LandscapeError(
                    f"no GPU here, and {problem.name} is not recorded in space {name}; "
                    f"recorded: {', '.join(p.name for p in _problems(landscapes, name)) or 'nothing'}"
                )
            space = registry.space(name)
            searches.append(_search(plan, task, recorded_feasible(space, task, landscape_of(task, landscapes))))
    return searches


def execute(
    plan: Plan, device: Device, searches: Sequence[TaskSearch], fleet: Fleet, database: Database, watcher: Watcher
) -> Result:
    """Run the searches and build the table from everything the database holds of their tasks."""
    objective = registry.objective(plan.objective)
    run(searches, fleet, database, objective, watcher)
    measurements: list[Measurement] = []
    for search in searches:
        task = search.task
        known = database.known(task, fleet.protocol(task), fleet.evidence, fleet.toolchain(task))
        measurements.extend(known.values())
    table = build_table(device, objective, plan.objective, measurements, BASELINE_SPACE)
    return Result(table, _findings(searches, fleet), tuple(measurements))


def read_all(paths: Sequence[Path]) -> tuple[Landscape, ...]:
    """The landscapes of all files, in order."""
    return tuple(landscape for path in paths for landscape in read_landscapes(path))


def _spaces(plan: Plan) -> tuple[str, ...]:
    return tuple(dict.fromkeys((BASELINE_SPACE, *plan.spaces)))


def _problems(landscapes: Sequence[Landscape], space: str) -> tuple[Problem, ...]:
    return tuple(x.problem for x in landscapes if x.problem is not None and x.context.get("space", space) == space)


def _search(plan: Plan, task: Task, feasible: tuple[Config, ...]) -> TaskSearch:
    space = registry.space(task.space)
    if task.space == BASELINE_SPACE:  # one config: nothing to search
        return prepare(task, space, feasible, "exhaustive", len(feasible), plan.seed, plan.batch)
    return prepare(task, space, feasible, plan.sampler, plan.budget, plan.seed, plan.batch)


def _findings(searches: Sequence[TaskSearch], fleet: Fleet) -> tuple[Finding, ...]:
    best = {search.task: search.tuner.best for search in searches}
    findings = []
    for search in searches:
        task, trials = search.task, search.tuner.trials
        if task.space == BASELINE_SPACE:
            continue
        baseline = best.get(Task(task.problem, task.device, BASELINE_SPACE))
        found = best[task]
        failures: dict[str, int] = {}
        for trial in trials:
            if trial.status is not Status.OK:
                failures[trial.status.value] = failures.get(trial.status.value, 0) + 1
        fraction = None
        if isinstance(fleet, ReplayFleet):
            fraction = fleet.optimum_ns(task) / found.score if found is not None and found.score else 0.0
        findings.append(
            Finding(
                problem=task.problem,
                space=task.space,
                config=found.config if found else None,
                time_ns=found.score if found else None,
                baseline_ns=baseline.score if baseline else None,
                evaluations=len(trials),
                failures=failures,
                fraction_of_optimum=fraction,
            )
        )
    return tuple(findings)
