"""End the search of a problem in a space whose configs stay behind those of another space."""

import math
from collections.abc import Sequence

from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.task_search import TaskSearch

_LOOKS = ((8, 1.5), (16, 1.1))
"""Evaluations after which the spaces of a problem are compared, and the factor behind the best one that ends a search.
experiments/scheduling says what other factors save and lose."""


class Rivals:
    """The searches of each problem in several spaces.

    A comparison takes each search's best after as many evaluations, and searches wait for one another there. What ends
    therefore does not depend on which search came first.
    """

    def __init__(self, searches: Sequence[TaskSearch]) -> None:
        """Take a campaign's searches. Those that are swept or have several objectives are not compared."""
        groups: dict[object, list[TaskSearch]] = {}
        for search in searches:
            if not search.is_swept and search.objectives == 1:
                groups.setdefault((search.task.problem, search.task.device), []).append(search)
        several = (group for group in groups.values() if len(group) > 1)
        self._groups = {search.task: group for group in several for search in group}
        self._marks: dict[Task, list[float]] = {task: [] for task in self._groups}  # best score at each look
        self._waiting: dict[Task, TaskSearch] = {}

    def judge(self, search: TaskSearch) -> str | None:
        """Return why a search ends, empty if it goes on, and None if it waits for others of its problem."""
        group = self._groups.get(search.task, [])
        looks = sum(search.evaluations >= evaluations for evaluations, _ in _LOOKS)
        if not group or not looks:
            return ""
        own = self._mark(search, looks)[looks - 1]
        if any(len(self._marks[each.task]) < looks for each in group):
            self._waiting[search.task] = search
            return None
        lead, space = min((self._marks[each.task][looks - 1], each.task.space) for each in group)
        if own <= _LOOKS[looks - 1][1] * lead:
            return ""
        behind = f"{own / lead - 1:.0%} behind" if own < math.inf else "nothing ran, unlike in"
        return f"{behind} {space} after {search.evaluations} evaluations"

    def end(self, search: TaskSearch) -> None:
        """Let the best of a search that has ended stand for all later comparisons."""
        if search.task in self._groups:
            self._mark(search, len(_LOOKS))

    def free(self, search: TaskSearch) -> list[TaskSearch]:
        """Return the searches that wait for this one no longer."""
        group = [each.task for each in self._groups.get(search.task, [])]
        least = min((len(self._marks[task]) for task in group), default=0)
        waiting = [task for task in group if task in self._waiting and task != search.task]
        return [self._waiting.pop(task) for task in waiting if len(self._marks[task]) <= least]

    def clear(self) -> list[TaskSearch]:
        """Remove and return all searches that wait."""
        waiting, self._waiting = list(self._waiting.values()), {}
        return waiting

    def _mark(self, search: TaskSearch, looks: int) -> list[float]:
        """Return the best scores of a search within the evaluations of each look that is due."""
        marks = self._marks[search.task]
        for evaluations, _ in _LOOKS[len(marks) : looks]:
            scores = (trial.score for trial in search.trials[:evaluations])
            marks.append(min((score for score in scores if score is not None), default=math.inf))
        return marks
