"""The backend of a campaign that measures on GPUs."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

from gemmtune.engine.campaign.backend import Backend, search_of
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.dry_build import with_defaults
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.elsewhere.search_processes import SearchProcesses
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import enumerate_space, possible_evaluations, searched_configs
from gemmtune.engine.toolchain.clock_lock import ClockLock
from gemmtune.engine.toolchain.gpu_info import equal_gpus

OpenExecutor = Callable[[tuple[str, ...]], Executor]
"""Function that opens an executor for the spaces of these names."""
_GPUS_PER_PROCESS = 2
"""GPUs per process of searches. The builders of a single GPU leave the driver time to search itself."""
_CPUS_PER_PROCESS = 12
"""CPUs of the driver's host per process of searches, at least."""


def measured_backend(
    plan: Plan,
    device: Device,
    open_executor: OpenExecutor,
    *,
    problems: Sequence[Workload] = (),
    clock_mhz: int | None = None,
    search_processes: int | None = None,
    notify: Notify = log_notice,
) -> Backend:
    """Find the plan's tasks and open the executor of GPUs of one model, in this machine or in a cluster.

    A problem is searched in those spaces of the plan that have a config for it. A problem that the vendor has no
    kernel for has no baseline.

    Args:
        plan: what to tune.
        device: the GPU's model.
        open_executor: opens the executor, given the names of the spaces that have tasks.
        problems: what to tune instead of the problems that the plan names.
        clock_mhz: SM clock to lock this machine's GPUs at until the backend is closed; None to leave the clocks.
        search_processes: number of processes that run the searches; by default as many GPUs and CPUs call for.
        notify: called with lines about the clock lock and the processes of searches.

    Raises:
        UsageError: nothing to tune, or no space of the plan has a feasible config for a problem.
        DeviceError: the GPU has no such clock.
    """
    named = problems or named_problems(plan)
    tuned = with_defaults([each for each in named if each not in plan.held_out], device, notify=notify)
    tasks = tuple(_tasks(plan, device, (*tuned, *plan.held_out)))
    with ExitStack() as opened:
        executor = open_executor(tuple(dict.fromkeys(each.task.space for each in tasks)))
        opened.callback(executor.close)
        if clock_mhz is not None:
            for gpu in equal_gpus():
                opened.enter_context(ClockLock(gpu, clock_mhz, notify))

        usual = min(executor.parallel // _GPUS_PER_PROCESS, len(os.sched_getaffinity(0)) // _CPUS_PER_PROCESS)
        size = usual if search_processes is None else search_processes
        processes = SearchProcesses(size, notify)
        opened.callback(processes.close)
        for each in tasks:
            each.begin_elsewhere = processes.begin

        def more(problem: Workload) -> tuple[TaskSearch, ...]:
            return tuple(_tasks(plan.changed(problems=(problem,), held_out=()), device, (problem,)))

        return Backend(device, executor, plan.plugins.sampler, tasks, opened.pop_all().close, more=more)


def named_problems(plan: Plan) -> tuple[Workload, ...]:
    """Return the problems that the plan names, those held out last; raises UsageError if there is none."""
    if not plan.problems:
        raise UsageError("no problem to tune: name one, for example 2048x4096x4096:bf16:nt")
    return (*plan.problems, *plan.held_out)


def unsearched(plan: Plan, tasks: Sequence[Task]) -> Iterator[str]:
    """Yield a line per space of the plan that some problems are not searched in: how many, and why the first is not."""
    problems = {task.problem: task.device for task in tasks}
    for name in dict.fromkeys(plan.spaces):
        searched = {task.problem for task in tasks if task.space == name}
        if absent := [problem for problem in problems if problem not in searched]:
            why = reason_of_none(plan.plugins.spaces[name], Task(absent[0], problems[absent[0]], name))
            yield f"{len(absent)} of {len(problems)} problems are not searched in {name}: {why}"


def reason_of_none(space: Space, task: Task) -> str:
    """Return why no config of the space is feasible for the task."""
    found = enumerate_space(space, task)
    why = "; ".join(dict.fromkeys(found.examples.values()))
    if found.points < found.size:
        why = f"of {found.size} points none is feasible among those drawn: {why}"
    return f"space {task.space} has nothing for {task.problem.name} on {task.device.sku}: {why}"


def _tasks(plan: Plan, device: Device, problems: Sequence[Workload]) -> Iterator[TaskSearch]:
    for problem in problems:
        tasks = {Task(problem, device, name): space for name, space in plan.plugins.spaces.items()}
        seeds = {task: own_seed(plan.seed, task.key) for task in tasks}
        counts = {task: possible_evaluations(space, task, plan.budget, seeds[task]) for task, space in tasks.items()}
        if not any(counts[task] for task in tasks if task.space in plan.spaces):
            raise UsageError("; ".join(reason_of_none(s, t) for t, s in tasks.items() if t.space in plan.spaces))
        for task, space in tasks.items():
            if counts[task]:
                configs = partial(searched_configs, space, task, plan.budget, seeds[task])
                yield search_of(plan, task, counts[task], configs)
