"""The backend of a campaign on paper: kernels are built, and a model of the space gives their times."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack

from gemmtune.engine.campaign.backend import Backend, search_of
from gemmtune.engine.campaign.measured_backend import named_problems, reason_of_none
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import searched_configs
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler


def estimated_backend(
    plan: Plan,
    device: Device,
    why: str,
    *,
    open_executor: Callable[[Mapping[str, Space]], EstimateExecutor] = EstimateExecutor,
    notes: tuple[str, ...] = (),
) -> Backend:
    """Estimate the feasible configs of the plan's tasks, but no baseline, which no model estimates.

    The estimates are known beforehand: the configs are evaluated in their order, the best first.

    Args:
        plan: what to tune.
        device: the GPU to build for.
        why: why nothing is timed, for a person.
        open_executor: opens the executor of the spaces.
        notes: lines for a person, before the one that names the model.

    Raises:
        UsageError: nothing to tune, a space estimates none of its feasible configs, the spaces have models of their
            own, or the objective needs energy.
        ToolchainMissing: a space cannot build here.
    """
    if protocol(plan.plugins.objective.protocol).energy:
        raise UsageError(f"objective {plan.objective} needs energy, which no model estimates: minimise latency")
    problems = named_problems(plan)
    spaces = {name: space for name, space in plan.plugins.spaces.items() if name in plan.spaces}
    with ExitStack() as opened:
        executor = open_executor(spaces)
        opened.callback(executor.close)
        pairs = ((p, name) for p in problems for name, space in spaces.items() if space.workload == p.kind)
        tasks = tuple(_task(plan, executor, Task(p, device, name)) for p, name in pairs)
        models = {executor.prior(each.task).model: each.task.space for each in tasks}
        if len(models) > 1:
            raise UsageError(f"{' and '.join(models.values())} have models of their own, not to be compared: tune one")
        note = f"{why}: kernels are built for it and not timed ({executor.protocol(tasks[0].task)})."
        return Backend(device, executor, ExhaustiveSampler, tasks, opened.pop_all().close, (*notes, note))


def _task(plan: Plan, executor: EstimateExecutor, task: Task) -> TaskSearch:
    prior, space = executor.prior(task), plan.plugins.spaces[task.space]
    configs = tuple(searched_configs(space, task, plan.budget, own_seed(plan.seed, task.key)))
    if not configs:
        raise UsageError(reason_of_none(space, task))
    estimated = tuple(sorted((c for c in configs if c in prior.times_ns), key=prior.times_ns.__getitem__))
    if not estimated:
        raise UsageError(f"nothing estimates {task.problem.name}: {prior.reason}")
    return search_of(plan, task, min(plan.budget, len(estimated)), lambda: estimated, ExhaustiveSampler)
