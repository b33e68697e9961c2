"""Builds in the order in which the search waits for them."""

from __future__ import annotations

from collections import Counter, deque

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.records.task import Task

__all__ = ["BuildQueue"]


class BuildQueue:
    """What is not yet with a builder: finals first, then the task with the fewest evaluations left to wait for.

    A sampler goes on when its whole batch is told, so the batch that is nearly done is the one that holds a search up.
    Of those equally near, the task with the fewest behind it: or tasks come to the end one after the other, and the
    last few do not keep the builders busy.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._urgent: deque[BuildJob] = deque()
        self._queued: dict[Task, deque[BuildJob]] = {}
        self._open: Counter[Task] = Counter()
        self._over: Counter[Task] = Counter()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._queued)

    def __len__(self) -> int:
        return len(self._urgent) + sum(len(jobs) for jobs in self._queued.values())

    def add(self, job: BuildJob) -> None:
        """Queue the build of one evaluation, which is open until it is `over`."""
        self._queued.setdefault(job.task, deque()).append(job)
        self._open[job.task] += 1

    def add_urgent(self, job: BuildJob) -> None:
        """Queue a build that a final waits for: its searches are done."""
        self._urgent.append(job)

    def over(self, task: Task) -> None:
        """One evaluation of the task has ended."""
        self._over[task] += 1
        self._open[task] -= 1
        if self._open[task] <= 0:
            del self._open[task]

    def pop(self) -> BuildJob:
        """The build to begin next; of tasks that are alike in that, the one queued first.

        Raises:
            ValueError: nothing is queued.
        """
        if self._urgent:
            return self._urgent.popleft()
        task = min(self._queued, key=lambda t: (self._open[t], self._over[t]))
        jobs = self._queued[task]
        job = jobs.popleft()
        if not jobs:
            del self._queued[task]
        return job
