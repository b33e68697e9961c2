"""The backend of a campaign, which answers for it: GPUs, recorded landscapes or a model."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import History, TaskSearch, no_history
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler


def unknown_optimum(task: Task) -> float | None:
    """Return None: nobody knows the best score there is."""
    return None


@dataclass(frozen=True, slots=True)
class TaskConfigs:
    """A task and the configs it may be searched in."""

    task: Task
    """Task that the configs belong to."""
    budget: int
    """Evaluations to spend: the plan's budget, or the number of feasible configs where there are fewer."""
    configs: Callable[[], Iterable[Config]]
    """Function that returns the feasible configs in the order of enumeration; each call checks them anew."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The source of a campaign's numbers, opened for one plan."""

    device: Device
    """GPU that the numbers are of."""
    executor: Executor
    """Executor that evaluates configs."""
    sampler: type[Sampler]
    """Sampler of the plan's spaces."""
    tasks: tuple[TaskConfigs, ...]
    """Tasks of the plan with their configs, the baseline of each problem first."""
    close: Callable[[], None]
    """Function that ends every process of the executor and restores what was changed."""
    notes: tuple[str, ...] = ()
    """Lines for a person: why landscapes or a model answer."""
    optimum: Callable[[Task], float | None] = unknown_optimum
    """Function that returns the score of the best config there is, or None where it is unknown."""

    def searches(self, plan: Plan, history: History = no_history) -> list[TaskSearch]:
        """Return a fresh search of every task.

        Args:
            plan: the plan that the backend was opened for.
            history: returns the trials of other tasks for a sampler that learns.

        Raises:
            UsageError: the objective has several scores, and the sampler takes one.
        """
        return [
            TaskSearch(
                each.task,
                plan.plugins.spaces[each.task.space],
                each.configs,
                ExhaustiveSampler if each.task.is_baseline else self.sampler,
                each.budget,
                seed=plan.seed,
                batch=plan.batch,
                objectives=plan.scores,
                history=history,
            )
            for each in self.tasks
        ]
