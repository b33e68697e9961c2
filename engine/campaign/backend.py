"""The backend of a campaign, which answers for it: GPUs, recorded landscapes or a model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

More = Callable[[Workload], tuple[TaskSearch, ...]]
"""Function that returns fresh searches of a further problem, the baseline first; it raises UsageError for one that the
backend cannot answer for."""


def no_more(problem: Workload) -> tuple[TaskSearch, ...]:
    """Raise a UsageError for every further problem."""
    raise UsageError(f"{problem.name} cannot be added here: tune it in a campaign of its own")


def unknown_optimum(task: Task) -> float | None:
    """Return None: nobody knows the best score there is."""
    return None


@dataclass(frozen=True, slots=True)
class Backend:
    """The source of a campaign's numbers, opened for one plan."""

    device: Device
    """GPU that the numbers are of."""
    executor: Executor
    """Executor that evaluates configs."""
    sampler: type[Sampler]
    """Sampler of every search but those of baselines."""
    searches: tuple[TaskSearch, ...]
    """Fresh searches of the plan's tasks, the baseline of each problem first; they serve one campaign."""
    close: Callable[[], None]
    """Function that ends every process of the executor and restores what was changed."""
    notes: tuple[str, ...] = ()
    """Lines for a person: why landscapes or a model answer."""
    optimum: Callable[[Task], float | None] = unknown_optimum
    """Function that returns the score of the best config there is, or None where it is unknown."""
    more: More = no_more
    """Function that returns the searches of a problem that is added to a running campaign."""


def search_of(
    plan: Plan, task: Task, budget: int, configs: Callable[[], Iterable[Config]], sampler: type[Sampler] | None = None
) -> TaskSearch:
    """Return a fresh search of a task of the plan.

    Args:
        plan: says how to search.
        task: task to search.
        budget: evaluations to spend: the plan's budget, or the number of feasible configs where there are fewer.
        configs: returns the feasible configs in the order of enumeration.
        sampler: sampler of every space but a baseline's, which is swept; by default the plan's.

    Raises:
        UsageError: the objective has several scores, and the sampler takes one.
    """
    return TaskSearch(
        task,
        plan.plugins.spaces[task.space],
        configs,
        ExhaustiveSampler if task.is_baseline else sampler or plan.plugins.sampler,
        budget,
        seed=plan.seed,
        batch=plan.batch,
        objectives=plan.scores,
    )
