"""What is known of other tasks, for the samplers that learn from them: the database's, and what ships with gemmtune."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cache, partial

from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.measurement import Evidence, Trial
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.landscape_search import RecordedTask
from gemmtune.engine.scheduling.scoring import trial_of
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.search.task_features import TaskFeatures
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.embedded import embedded
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes

__all__ = ["teach"]


def teach(
    searches: Sequence[TaskSearch],
    executor: Executor,
    database: Database,
    objective: Objective,
    *,
    apart: Collection[Problem] = (),
) -> None:
    """Give each search whose sampler learns what was measured of other tasks of its space, by its protocol.

    What the campaign itself measures is no part of it: a campaign that was killed is taught the same when it goes on,
    and so asks what it asked before. Its tasks teach those of later campaigns. Nor do the problems `apart`, which it
    measures without a search.

    Where an executor measures times, the landscapes that ship with gemmtune teach too, of the same space and kind of
    GPU: who tunes for the first time need not begin with nothing. An executor that replays them is not told the
    answers.

    Nothing is read before a search asks for it: meanwhile the baselines are built, and what builds and measures begins.
    A StoreError, where the database cannot be read, comes then.
    """
    own = {search.task for search in searches}
    lessons: dict[tuple[str, str], Callable[[], tuple[SourceTask, ...]]] = {}

    def lesson(of: Task, protocol: str) -> tuple[SourceTask, ...]:
        measured = (
            past
            for task in database.tasks()
            if task.space == of.space and task not in own and task.problem not in apart
            for past in _pasts(task, protocol, executor, database, objective)
        )
        times = executor.evidence is Evidence.MEASURED and objective.unit == "ns"
        return *(_shipped(of) if times else ()), *measured

    for search in searches:
        if search.sampler.learns:
            terms = (search.task.space, executor.protocol(search.task))
            search.teach(lessons.setdefault(terms, cache(partial(lesson, search.task, terms[1]))))


def _shipped(task: Task) -> Iterator[SourceTask]:
    """What is recorded of the task's space on its kind of GPU."""
    for path in embedded(task.space):
        for landscape in read_landscapes(path):
            if (landscape.context["space"], landscape.context["device"]) == (task.space, task.device.sku):
                recorded = RecordedTask(landscape)
                yield recorded.as_source([recorded.outcome(config) for config in recorded.feasible])


def _pasts(task: Task, protocol: str, executor: Executor, database: Database, objective: Objective) -> list[SourceTask]:
    """A task's outcomes, each toolchain's by themselves: only they compare with each other."""
    trials: dict[Toolchain, list[Trial]] = {}
    for measurement in database.measurements(task):
        if (measurement.protocol, measurement.evidence) == (protocol, executor.evidence):
            trials.setdefault(measurement.toolchain, []).append(trial_of(measurement, objective))
    features = TaskFeatures(registry.space(task.space), task)
    return [SourceTask(tuple(told), features) for told in trials.values()]
