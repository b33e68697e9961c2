"""The contract of a backend, which answers for a campaign: GPUs, recorded landscapes or a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.task import BASELINE_SPACE, Task
from gemmtune.engine.scheduling.task_search import History, TaskSearch, no_history
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

__all__ = ["Backend", "TaskConfigs"]


@dataclass(frozen=True, slots=True)
class TaskConfigs:
    """A task and the configs it may be searched in."""

    task: Task
    """Task that the configs belong to."""
    budget: int
    """Evaluations to spend: the plan's budget, or the number of feasible configs where there are fewer."""
    configs: Callable[[], Sequence[Config]]
    """Function that returns the feasible configs in the order of enumeration."""


class Backend(Protocol):
    """The source of a campaign's numbers.

    A backend is opened for one plan: it knows the plan's tasks and the executor that evaluates their configs.
    """

    device: Device
    """GPU that the numbers are of."""
    executor: Executor
    """Executor that evaluates configs; the backend closes it."""
    notes: tuple[str, ...]
    """Lines for a person: why landscapes or a model answer."""
    tasks: tuple[TaskConfigs, ...]
    """Tasks of the plan with their configs, the baseline of each problem first."""

    @property
    def evidence(self) -> Evidence:
        """Evidence of the numbers: measured, replayed or estimated."""
        return self.executor.evidence

    def sampler(self, plan: Plan) -> type[Sampler]:
        """Return the sampler that searches the plan's spaces."""
        return plan.plugins.sampler

    def searches(self, plan: Plan, history: History = no_history) -> list[TaskSearch]:
        """Return a fresh search of every task.

        Args:
            plan: the plan that the backend was opened for.
            history: tells a sampler that learns the trials of other tasks.

        Raises:
            UsageError: the objective has several scores, and the sampler takes one.
        """
        sampler = self.sampler(plan)
        return [
            TaskSearch(
                each.task,
                plan.plugins.spaces[each.task.space],
                each.configs,
                ExhaustiveSampler if each.task.space == BASELINE_SPACE else sampler,
                each.budget,
                seed=plan.seed,
                batch=plan.batch,
                objectives=plan.scores,
                history=history,
            )
            for each in self.tasks
        ]

    def optimum(self, task: Task) -> float | None:
        """Return the score of the best config there is, or None where it is unknown."""
        return None

    def close(self) -> None:
        """End every process of the executor."""
        self.executor.close()
