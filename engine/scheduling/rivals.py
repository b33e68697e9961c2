"""End the search of a problem in a space whose configs stay behind those of another space."""

import math
from collections.abc import Sequence

from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler

__all__ = ["Rivals"]

_LOOKS = ((8, 1.5), (16, 1.1))
"""Evaluations after which the spaces of a problem are compared, and the factor behind the best one that ends a search.

See experiments/scheduling for what other factors save and lose."""


class Rivals:
    """The searches of each problem in several spaces.

    A comparison takes each search's best after as many evaluations, and searches wait for one another there. What ends
    therefore does not depend on which search came first.
    """

    def __init__(self, searches: Sequence[TaskSearch]) -> None:
        """Take a campaign's searches. Those that are exhaustive or have several objectives are not compared."""
        compared = [each for each in searches if each.sampler is not ExhaustiveSampler and each.objectives == 1]
        groups: dict[object, list[TaskSearch]] = {}
        for search in compared:
            groups.setdefault((search.task.problem, search.task.device), []).append(search)
        self._groups = {
            search.task: [other for other in group if other is not search]
            for group in groups.values()
            if len(group) > 1
            for search in group
        }
        self._marks: dict[Task, list[float]] = {task: [] for task in self._groups}  # best score at each look
        self._waiting: dict[Task, TaskSearch] = {}

    def judge(self, search: TaskSearch) -> str | None:
        """Return why a search ends, empty if it goes on, and None if it waits for others of its problem."""
        others = self._groups.get(search.task, [])
        looks = sum(search.tuner.evaluations >= evaluations for evaluations, _ in _LOOKS)
        if not others or not looks:
            return ""
        marks = self._mark(search, looks)
        if any(len(self._marks[other.task]) < looks for other in others):
            self._waiting[search.task] = search
            return None
        leader = min(others, key=lambda other: self._marks[other.task][looks - 1])
        lead = self._marks[leader.task][looks - 1]
        if marks[looks - 1] <= _LOOKS[looks - 1][1] * lead:
            return ""
        behind = (
            f"{marks[looks - 1] / lead - 1:.0%} behind" if marks[looks - 1] < math.inf else "nothing ran, unlike in"
        )
        return f"{behind} {leader.task.space} after {search.tuner.evaluations} evaluations"

    def end(self, search: TaskSearch) -> None:
        """Let the best of a search that has ended stand for all later comparisons."""
        if search.task in self._groups:
            self._mark(search, len(_LOOKS))

    def free(self, search: TaskSearch) -> list[TaskSearch]:
        """Return the searches that wait for this one no longer."""
        freed = []
        for other in self._groups.get(search.task, []):
            rivals = self._groups[other.task]
            due = len(self._marks[other.task])
            if other.task in self._waiting and all(len(self._marks[rival.task]) >= due for rival in rivals):
                freed.append(self._waiting.pop(other.task))
        return freed

    def clear(self) -> list[TaskSearch]:
        """Remove and return all searches that wait."""
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def _mark(self, search: TaskSearch, looks: int) -> list[float]:
        """Return the best scores of a search at its looks, with that of now for those that are due."""
        best, marks = search.tuner.best, self._marks[search.task]
        score = math.inf if best is None or best.score is None else best.score
        marks += [score] * (looks - len(marks))
        return marks
