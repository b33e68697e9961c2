"""Trials of other tasks, for samplers that learn from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Evidence, Trial
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.scheduling.scoring import trial_of
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.task_features import TaskFeatures
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

__all__ = ["TaskHistory"]


class TaskHistory:
    """Trials of other tasks of a space, from the database and from the shipped landscapes.

    The campaign's own tasks are left out: a campaign that was killed then learns the same when it continues, and asks
    for the same configs. Its measurements serve later campaigns.

    The shipped landscapes of the space and the GPU's kind are included where the executor measures times. An executor
    that replays them would learn its own answers.
    """

    def __init__(
        self,
        database: Database,
        executor: Executor,
        objective: Objective,
        spaces: Mapping[str, Space],
        *,
        own: Collection[Task],
        excluded: Collection[Problem] = (),
    ) -> None:
        """Read nothing yet.

        Args:
            database: holds the measurements.
            executor: tells by which protocol and evidence measurements compare.
            objective: scores the measurements.
            spaces: the campaign's spaces by name.
            own: the campaign's tasks.
            excluded: problems that the campaign measures without a search.
        """
        self._database = database
        self._executor = executor
        self._objective = objective
        self._spaces = spaces
        self._own = own
        self._excluded = excluded
        self._read: dict[tuple[str, str], tuple[SourceTask, ...]] = {}

    def __call__(self, task: Task) -> tuple[SourceTask, ...]:
        """Return the trials for a task; read once per space and protocol.

        Raises:
            StoreError: the database cannot be read.
        """
        key = task.space, self._executor.protocol(task)
        if key not in self._read:
            times = self._executor.evidence is Evidence.MEASURED and self._objective.unit == "ns"
            shipped = _shipped(task) if times else ()
            self._read[key] = (*shipped, *self._measured(*key))
        return self._read[key]

    def _measured(self, space: str, protocol: str) -> Iterator[SourceTask]:
        """Yield the database's trials of one space and protocol, each toolchain's of a task apart."""
        for task in self._database.tasks():
            if task.space != space or task in self._own or task.problem in self._excluded:
                continue
            trials: dict[Toolchain, list[Trial]] = {}
            for measurement in self._database.measurements(task):
                if (measurement.protocol, measurement.evidence) == (protocol, self._executor.evidence):
                    trials.setdefault(measurement.toolchain, []).append(trial_of(measurement, self._objective))
            features = TaskFeatures(self._spaces[space], task)
            for comparable in trials.values():
                yield SourceTask(tuple(comparable), features)


def _shipped(task: Task) -> Iterator[SourceTask]:
    """Yield the shipped trials of the task's space on its kind of GPU."""
    for path in embedded(task.space):
        for landscape in read_landscapes(path):
            if (landscape.context["space"], landscape.context["device"]) == (task.space, task.device.sku):
                recorded = LandscapeSearch(landscape)
                yield recorded.as_source([recorded.outcome(config) for config in recorded.feasible])
