"""The backend of a campaign on paper: kernels are built, and a model of the space gives their times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gemmtune.engine.campaign.backend import Backend, TaskConfigs
from gemmtune.engine.campaign.measured_backend import named_problems, reason_of_none
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.estimate import EstimateExecutor
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.processes.process_pool import Notify, log_notice
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.errors import UsageError
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.pruner import Pruner
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

__all__ = ["EstimatedBackend"]


class EstimatedBackend(Backend):
    """A model of kernel times, without a baseline, which no model estimates."""

    def __init__(
        self,
        plan: Plan,
        device: Device,
        why: str,
        *,
        builders: int | None = None,
        pruners: Mapping[str, Pruner] | None = None,
        notes: tuple[str, ...] = (),
        notify: Notify = log_notice,
    ) -> None:
        """Estimate every feasible config of the plan's tasks.

        Args:
            plan: what to tune.
            device: the GPU to build for.
            why: why nothing is timed, for a person.
            builders: builder processes; by default one per core.
            pruners: by name, applied before and after each build.
            notes: lines for a person, before the one that names the model.
            notify: called with lines for a person while the campaign runs.

        Raises:
            UsageError: nothing to tune, a space estimates none of its feasible configs, the spaces have models of
                their own, or the objective needs energy.
            ToolchainMissing: a space cannot build here.
        """
        objective = plan.plugins.objective
        if protocol(objective.protocol).energy:
            raise UsageError(f"objective {plan.objective} needs energy, which no model estimates: minimise latency")
        problems = named_problems(plan)
        spaces = {name: space for name, space in plan.plugins.spaces.items() if name in plan.spaces}
        self.device = device
        self.executor = EstimateExecutor(spaces, builders=builders, pruners=pruners, notify=notify)
        try:
            self.tasks, model = self._estimate(plan, [Task(p, device, name) for p in problems for name in spaces])
        except BaseException:
            self.executor.close()
            raise
        self.notes = (*notes, f"{why}: kernels are built for it and not timed ({model}).")

    def sampler(self, plan: Plan) -> type[Sampler]:
        """Return the exhaustive sampler: estimates are known beforehand, and the best come first."""
        return ExhaustiveSampler

    def _estimate(self, plan: Plan, tasks: Sequence[Task]) -> tuple[tuple[TaskConfigs, ...], str]:
        """Return the configs of each task, and the name of the model."""
        found = tuple(self._task(plan, task) for task in tasks)
        models = {self.executor.prior(task).model: task.space for task in tasks}
        if len(models) > 1:
            raise UsageError(f"{' and '.join(models.values())} have models of their own, not to be compared: tune one")
        return found, self.executor.protocol(tasks[0])

    def _task(self, plan: Plan, task: Task) -> TaskConfigs:
        prior, space = self.executor.prior(task), plan.plugins.spaces[task.space]
        configs = tuple(feasible_configs(space, task))
        if not configs:
            raise UsageError(reason_of_none(space, task))
        estimated = tuple(sorted((c for c in configs if c in prior.times_ns), key=prior.times_ns.__getitem__))
        if not estimated:
            raise UsageError(
                f"space {task.space} has no estimate for {task.problem.name} on {task.device.sku}: {prior.reason}"
            )
        return TaskConfigs(task, min(plan.budget, len(estimated)), lambda: estimated)
