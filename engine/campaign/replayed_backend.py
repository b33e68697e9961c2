"""The backend of a campaign that replays recorded landscapes."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from itertools import chain, islice, product
from pathlib import Path

from gemmtune.engine.campaign.backend import Backend, no_more, search_of
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.replay import LandscapeIndex, ReplayExecutor
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import LandscapeError, UsageError
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import membership
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.toolchain.installed import install_command

_OBJECTIVES = {"cold-l2": "latency", "warm-l2": "latency_warm"}
"""Objective that recordings allow, by the cache state that their protocol's name contains."""


def replayed_backend(
    plan: Plan, landscapes: Sequence[Landscape], executor: Executor | None = None, *, notes: tuple[str, ...] = ()
) -> Backend:
    """Find the plan's tasks among the landscapes of one device; a plan without problems has every recorded one.

    Args:
        plan: what to tune.
        landscapes: each names its space, its device and its problem; see `completed`.
        executor: answers from the landscapes; by default in this process.
        notes: lines for a person.

    Raises:
        LandscapeError: a landscape names no problem or no device, the landscapes are of several devices, or a problem
            has no recorded feasible config in a space.
        DeviceError: the catalogue does not know the device.
        UsageError: the objective minimises what was not recorded: another cache state, or energy.
    """
    device, answers = recorded_device(landscapes), ReplayExecutor(landscapes, plan.plugins.pruners)
    tasks, optimum = tuple(_tasks(plan, device, landscapes, answers)), partial(_optimum, answers.landscapes)
    own = no_more if executor else None  # what another executor answers, nobody here can add to
    executor = executor or answers

    def more(problem: Workload) -> tuple[TaskSearch, ...]:
        further = plan.changed(problems=(problem,), held_out=())
        recorded = (x for x in recorded_of(further) if x.context.get("device") == device.sku)
        found = completed((*landscapes, *recorded), plan.spaces, device)
        answers.landscapes.add(found)
        return tuple(_tasks(further, device, found, answers))

    return Backend(device, executor, plan.plugins.sampler, tasks, executor.close, notes, optimum, own or more)


def _optimum(index: LandscapeIndex, task: Task) -> float | None:
    """Return the best recorded time in nanoseconds; None where nothing recorded is ok."""
    try:
        return index.of(task).optimum_ns
    except ValueError:
        return None


def _tasks(
    plan: Plan, device: Device, landscapes: Sequence[Landscape], answers: ReplayExecutor
) -> Iterator[TaskSearch]:
    recorded = {
        name: dict.fromkeys(x.problem for x in landscapes if x.problem is not None and x.context["space"] == name)
        for name in plan.plugins.spaces
    }
    problems = plan.problems or tuple(dict.fromkeys(p for name in plan.spaces for p in recorded[name]))
    problems = tuple(dict.fromkeys((*problems, *plan.held_out)))
    names = ", ".join(sorted({landscape.context["space"] for landscape in landscapes})) or "nothing"
    if not problems:
        way_out = _estimable(plan.spaces[0])
        raise LandscapeError(f"nothing is recorded in space {' or '.join(plan.spaces)}; recorded: {names}{way_out}")
    _require_recorded(plan, problems, recorded, names)
    for problem in problems:
        for name, space in plan.plugins.spaces.items():
            task = Task(problem, device, name)
            if problem in recorded[name]:
                landscape = answers.landscapes.of(task)
                configs = partial(recorded_feasible, space, task, landscape)
                _check_params(task, space, landscape)
                # No more configs than the budget are checked before their search begins.
                first = tuple(islice(configs(), plan.budget))
                if not first:
                    raise LandscapeError(
                        f"{landscape.source}: none of the {len(landscape.points)} configs recorded of {landscape.name} "
                        f"is feasible in space {name} on {device.sku}"
                    )
                _check_objective(plan, task, chain(first, configs()), answers)
                yield search_of(plan, task, len(first), configs)
            # A landscape without a baseline is allowed: the table then has none.


_NAMED = 8  # problems of a refusal


def _require_recorded(
    plan: Plan, problems: Sequence[Workload], recorded: Mapping[str, Collection[Workload]], names: str
) -> None:
    """Raise a LandscapeError that names the first problem that is not recorded in a space; `names` has all spaces."""
    told = []
    for name in plan.spaces:
        kind = plan.plugins.spaces[name].workload
        missing = [each.name for each in problems if each.kind == kind and each not in recorded[name]]
        if not missing:
            continue
        rest = len(missing) - _NAMED
        listed = ", ".join(missing) if rest <= 1 else f"{', '.join(missing[:_NAMED])} and {rest} more"
        if recorded[name]:
            held = f"; recorded: {', '.join(p.name for p in recorded[name])}"
            verb, they = ("is", "it") if len(missing) == 1 else ("are", "they")
            what = f"{listed} {verb} not recorded in space {name}, and without a GPU {they}"
        else:
            held = f"; recorded: {names}{_estimable(name)}"
            what = f"nothing is recorded in space {name}, and without a GPU {listed}"
        told.append(f"{what} cannot be measured: run this on the GPU{held}")
    if told:
        raise LandscapeError("; ".join(told))


_CUTE_SPACES = ("cute_gemm", "quack_gemm")  # spaces of the extra `cute` that have a model


def _estimable(space: str) -> str:
    """Return how times of a space without any recorded landscape are estimated; empty where no model does."""
    if space not in _CUTE_SPACES:
        return ""
    cute = install_command("cute")
    return f"; gemmtune tune --device B200 builds its kernels and estimates their times, with {cute}"


def read_all(paths: Sequence[Path], problems: Set[Workload | None] | None = None) -> tuple[Landscape, ...]:
    """Return the landscapes of all files, in order; with `problems`, theirs alone."""
    return tuple(landscape for path in paths for landscape in read_landscapes(path, problems))


def recorded_of(plan: Plan) -> tuple[Landscape, ...]:
    """Return the shipped landscapes of the plan's problems.

    Return all where the plan names no problem, or one that is not recorded in each of its spaces: an error lists what
    is. Reading all takes a second.
    """
    if plan.problems:
        problems = frozenset((*plan.problems, *plan.held_out))
        found = read_all(embedded(), problems)
        if {(x.problem, x.context["space"]) for x in found} >= set(product(problems, plan.spaces)):
            return found
    return read_all(embedded())


def completed(landscapes: Sequence[Landscape], spaces: Sequence[str], device: Device | None) -> tuple[Landscape, ...]:
    """Return the landscapes with what their files leave open: the space that is searched, and the device.

    Args:
        landscapes: as they were read.
        spaces: names of the spaces to search.
        device: the device of landscapes that name none; None to leave it open.

    Raises:
        LandscapeError: a landscape names no space, and several are searched.
    """
    unsaid = {"space": spaces[0]} | ({"device": device.sku} if device else {})
    for landscape in landscapes:
        if "space" not in landscape.context and len(spaces) > 1:
            names = " and ".join(spaces)
            raise LandscapeError(f"{landscape.source} has no column task.space: search one space, not {names}")
    return tuple(replace(landscape, context=unsaid | dict(landscape.context)) for landscape in landscapes)


def recorded_device(landscapes: Sequence[Landscape]) -> Device:
    """Return the one device that the landscapes were recorded on.

    Raises:
        LandscapeError: a landscape names no problem or no device, or they name several devices.
        DeviceError: the catalogue does not know the device.
    """
    for landscape in landscapes:
        if landscape.problem is None:
            raise LandscapeError(
                f"{landscape.source} names no GEMM problem to tune for (columns problem.m, problem.n, problem.k); "
                f"to measure samplers on it: gemmtune compare {landscape.source}"
            )
        if "device" not in landscape.context:
            raise LandscapeError(f"{landscape.source} has no column task.device: name the device")
    found = sorted({landscape.context["device"] for landscape in landscapes})
    if len(found) != 1:
        raise LandscapeError(
            f"the landscapes are of {len(found)} devices ({', '.join(found)}): replay one device at a time"
        )
    return catalogue.device(found[0])


def recorded_feasible(space: Space, task: Task, landscape: Landscape) -> Iterator[Config]:
    """Yield the recorded configs that the space allows and that were not invalid when recorded, in file order."""
    check = membership(space, task)
    usable = (point.config for point in landscape.points.values() if point.status is not Status.INVALID)
    return filter(check, usable)


def _check_params(task: Task, space: Space, landscape: Landscape) -> None:
    """Refuse a landscape with other parameters than the space."""
    params = {param.name for param in space.params(task)}
    recorded = {param.name for param in landscape.params}
    if recorded != params:
        raise LandscapeError(
            f"{landscape.source}: {landscape.name} has the parameters {', '.join(sorted(recorded)) or 'none'}, "
            f"space {task.space} has {', '.join(sorted(params)) or 'none'}; name its space in a column task.space"
        )


def _check_objective(plan: Plan, task: Task, configs: Iterable[Config], answers: ReplayExecutor) -> None:
    """Refuse an objective whose numbers are not those that were recorded."""
    objective = plan.plugins.objective
    require_cache_state(objective, plan.objective, answers.protocol(task), task.key)
    measurements = (answers.recorded(task, config) for config in configs)
    first = next((found for found in measurements if found.status is Status.OK), None)
    if first is not None:
        objective.scores(first)  # raises where the measurement lacks what the objective reads


def require_cache_state(objective: Objective, name: str, protocol: str, recording: str) -> None:
    """Refuse an objective of another cache state than was recorded; a protocol's name may tell none.

    Args:
        objective: what is minimised.
        name: name of the objective.
        protocol: protocol of the recording.
        recording: what was recorded, for the message.

    Raises:
        UsageError: the cache states differ.
    """
    recorded, wanted = _state(protocol), _state(objective.protocol)
    if recorded and wanted and recorded != wanted:
        raise UsageError(
            f"objective {name} times with protocol {objective.protocol}, and {recording} was recorded with "
            f"{protocol}: measure on a GPU, or minimise {_OBJECTIVES[recorded]}"
        )


def _state(protocol: str) -> str:
    return next((state for state in _OBJECTIVES if state in protocol), "")
