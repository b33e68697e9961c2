"""Trials of other tasks, for samplers that learn from them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Evidence, Trial
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.scheduling.tuner import trial_of
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.task_features import TaskFeatures
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, shipped_searches


@dataclass(frozen=True, slots=True)
class TaskHistory:
    """Trials of other tasks of a space, from the database and from what ships with gemmtune.

    The campaign's own tasks are left out: a campaign that was killed then learns the same when it continues, and asks
    for the same configs. Its measurements serve later campaigns.

    The shipped landscapes and searches of the space and the GPU's kind are included where the executor measures times.
    An executor that replays landscapes would learn its own answers.
    """

    database: Database
    """Database of the measurements."""
    executor: Executor
    """Executor whose protocol and evidence tell which measurements compare."""
    objective: Objective
    """Objective that scores the measurements."""
    spaces: Mapping[str, Space]
    """Spaces of the campaign by name."""
    own: Collection[Task]
    """Tasks of the campaign."""
    excluded: Collection[Workload] = ()
    """Problems that the campaign measures without a search."""
    _read: dict[tuple[str, str, str], tuple[SourceTask, ...]] = field(default_factory=dict, init=False, repr=False)

    def __call__(self, task: Task) -> tuple[SourceTask, ...]:
        """Return the trials for a task; read once per space, protocol and kind of workload.

        Raises:
            StoreError: the database cannot be read.
        """
        key = task.space, self.executor.protocol(task), task.problem.learns_from
        if key not in self._read:
            times = self.executor.evidence is Evidence.MEASURED and self.objective.unit == "ns"
            shipped = _shipped(task) if times else ()
            self._read[key] = (*shipped, *self._measured(*key))
        return self._read[key]

    def _measured(self, space: str, protocol: str, learns_from: str) -> Iterator[SourceTask]:
        """Yield the database's trials of one space, protocol and kind of workload, each toolchain's of a task apart."""
        for task in self.database.tasks():
            if (task.space, task.problem.learns_from) != (space, learns_from):
                continue
            if task in self.own or task.problem in self.excluded:
                continue
            trials: dict[Toolchain, list[Trial]] = {}
            for measurement in self.database.measurements(task):
                if (measurement.protocol, measurement.evidence) == (protocol, self.executor.evidence):
                    trials.setdefault(measurement.toolchain, []).append(trial_of(measurement, self.objective))
            features = TaskFeatures(self.spaces[space], task)
            for comparable in trials.values():
                yield SourceTask(tuple(comparable), features)


def _shipped(task: Task) -> Iterator[SourceTask]:
    """Yield the shipped trials of the task's space on its kind of GPU."""
    for path in (*embedded(task.space), *shipped_searches(task.space)):
        for landscape in read_landscapes(path):
            if (landscape.context["space"], landscape.context["device"]) == (task.space, task.device.sku):
                yield LandscapeSearch(landscape).as_source()
