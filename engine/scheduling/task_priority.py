"""Choose which task gets the next batch."""

import math
from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["TaskPriority"]

_Entry = tuple[float, int, TaskSearch]
"""A search behind its sort key: evaluations per square root of the weight, then its number in the plan."""


class TaskPriority:
    """The searches that have a batch to submit, the one with the fewest evaluations for its weight first.

    Without a time limit every task gets its whole budget. The order then decides how good a campaign is that stops
    early, and how long its last task keeps the executor half idle. See experiments/scheduling for other orders.
    """

    def __init__(self, searches: Sequence[TaskSearch], in_work: int) -> None:
        """Begin without any search that has a batch; `in_work` is the most configs that the executor has at a time."""
        self._in_work = in_work
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._evaluations_left = sum(search.budget for search in searches)
        self._largest_budget = max((search.budget for search in searches), default=0)
        self._heap: list[_Entry] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, search: TaskSearch) -> None:
        """Add a search that has a batch to submit."""
        key = search.tuner.evaluations / math.sqrt(search.task.problem.weight)
        heappush(self._heap, (key, self._number[search.task], search))

    def subtract(self, evaluations: int) -> None:
        """Subtract evaluations that were completed or cancelled from those that are left."""
        self._evaluations_left -= evaluations

    def take(self) -> TaskSearch:
        """Remove and return the search whose batch is submitted next.

        A search comes first if its batches, one after the other, last as long as all evaluations that are left:
        otherwise it would end alone. A batch is back when the executor has done about what was in work with it.
        """
        if self._largest_budget * self._in_work >= self._evaluations_left:
            longest = max(self._heap, key=lambda entry: _batches_left(entry[-1]))
            if _batches_left(longest[-1]) * self._in_work >= self._evaluations_left:
                self._heap.remove(longest)
                heapify(self._heap)
                return longest[-1]
        return heappop(self._heap)[-1]

    def clear(self) -> list[TaskSearch]:
        """Remove and return all searches, the next one first."""
        entries, self._heap = sorted(self._heap), []
        return [search for *_, search in entries]


def _batches_left(search: TaskSearch) -> int:
    return math.ceil((search.budget - search.tuner.evaluations) / search.tuner.batch)
