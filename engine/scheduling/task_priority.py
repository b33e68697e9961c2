"""Choose which task gets the next batch."""

import math
from collections.abc import Sequence
from heapq import heappop, heappush

from gemmtune.engine.scheduling.task_search import TaskSearch

_Entry = tuple[float, int, TaskSearch]
"""A search behind its sort key: evaluations per square root of the weight, then its number in the plan."""


class TaskPriority:
    """The searches that have a batch to submit, the one with the fewest evaluations for its weight first.

    Without a time limit every task gets its whole budget. The order decides how good a campaign is that stops early.
    See experiments/scheduling for other orders.
    """

    def __init__(self, searches: Sequence[TaskSearch]) -> None:
        """Begin without any search that has a batch."""
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._heap: list[_Entry] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, search: TaskSearch) -> None:
        """Add a search that has a batch to submit."""
        key = search.evaluations / math.sqrt(search.task.problem.weight)
        heappush(self._heap, (key, self._number[search.task], search))

    def take(self) -> TaskSearch:
        """Remove and return the search whose batch is submitted next."""
        return heappop(self._heap)[-1]

    def clear(self) -> list[TaskSearch]:
        """Remove and return all searches, the next one first."""
        entries, self._heap = sorted(self._heap), []
        return [search for *_, search in entries]
