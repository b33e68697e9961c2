"""Whose turn it is: the next batch goes to the task where it is expected to gain most.

That is the problem's weight times what the batch should take off the best score (`expectation`). Without a limit on
time all tasks get their whole budget in the end, so that the order decides how good a campaign is that is stopped
early, and how long the last of them keeps an executor that has nothing else to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

from gemmtune.engine.scheduling.task_search import TaskSearch

__all__ = ["Turns"]

_Turn = tuple[float, int, int, TaskSearch]
"""A search behind what orders it: the most to gain, the least tried, the plan's first."""


class Turns:
    """The searches that have a batch to submit, or are to be asked for one."""

    def __init__(self, searches: Sequence[TaskSearch], most: int) -> None:
        """None has, yet.

        Args:
            searches: all of the campaign, in the plan's order.
            most: configs that are in work at a time.
        """
        self._most = most
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._left = sum(search.budget for search in searches)
        self._longest = max((search.budget for search in searches), default=0)  # and so its batches, at most
        self._heap: list[_Turn] = []

    def __bool__(self) -> bool:
        return bool(self._heap)

    def add(self, search: TaskSearch) -> None:
        """It has something to submit, or is to be asked."""
        heappush(self._heap, (-search.expected_gain, search.tuner.evaluations, self._number[search.task], search))

    def spent(self, evaluations: int) -> None:
        """So many evaluations more are done, or will not be made."""
        self._left -= evaluations

    @property
    def next(self) -> TaskSearch:
        """The one with the most to gain; before it, one that would else end alone.

        A batch is back when the executor has done about what was in work with it. So a task has no time to lose once
        its batches, one after the other, last as long as all that is left: near the end, and not before.
        """
        if self._longest * self._most >= self._left:
            longest = max((search for *_, search in self._heap), key=_batches_left)
            if _batches_left(longest) * self._most >= self._left:
                return longest
        return self._heap[0][-1]

    def take(self) -> TaskSearch:
        """The next one; it is no longer here."""
        search = self.next
        if self._heap[0][-1] is search:
            heappop(self._heap)
        else:
            self._heap = [turn for turn in self._heap if turn[-1] is not search]
            heapify(self._heap)
        return search

    def clear(self) -> list[TaskSearch]:
        """All of them, those with the most to gain first; none is here any longer."""
        turns, self._heap = sorted(self._heap), []
        return [search for *_, search in turns]


def _batches_left(search: TaskSearch) -> int:
    return -(-(search.budget - search.tuner.evaluations) // search.tuner.batch)
