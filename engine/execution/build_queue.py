"""Orders builds by how soon a search needs them."""

from collections import Counter, deque

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.records.task import Task

_HEAD_START = 20
"""Evaluations that the first task is ahead of the last one, where tasks do not advance alike. Chosen on the clock of
experiments/scaling: finals of a hundred problems begin early, and the last of 24 tasks keep the builders busy."""


class BuildQueue:
    """Builds that no builder has yet: finals first, then the task with the fewest open evaluations.

    A sampler continues once its whole batch is measured, so a batch that is nearly done delays its search most. Among
    equals the task with the fewest finished evaluations goes first. With a head start of the earlier tasks, finals are
    held while builders make what the later ones need.
    """

    def __init__(self, *, evenly: bool = True) -> None:
        """Start with an empty queue; `evenly`: whether no task has a head start."""
        self._head_start = 0 if evenly else _HEAD_START
        self._began: dict[Task, int] = {}
        self._urgent: deque[BuildJob] = deque()
        self._number = 0
        self._queued: dict[Task, deque[BuildJob]] = {}
        self._open: Counter[Task] = Counter()
        self._finished: Counter[Task] = Counter()

    def __bool__(self) -> bool:
        return bool(self._urgent or self._queued)

    def __len__(self) -> int:
        return self._number

    def add(self, job: BuildJob) -> None:
        """Queue the build of an evaluation, which stays open until `finish_evaluation`."""
        self._queued.setdefault(job.task, deque()).append(job)
        self._began.setdefault(job.task, len(self._began))
        self._open[job.task] += 1
        self._number += 1

    def add_urgent(self, job: BuildJob) -> None:
        """Queue a build for a final, whose searches are done."""
        self._urgent.append(job)
        self._number += 1

    def finish_evaluation(self, task: Task) -> None:
        """Count one evaluation of the task as finished."""
        self._finished[task] += 1
        self._open[task] -= 1
        if self._open[task] <= 0:
            del self._open[task]

    def pop(self) -> BuildJob:
        """Remove and return the next build, of equal tasks the one queued first; raises ValueError if there is none."""
        if self._urgent:
            self._number -= 1
            return self._urgent.popleft()
        later = self._head_start / max(len(self._began), 1)
        task = min(self._queued, key=lambda t: (self._open[t], self._finished[t] + later * self._began[t]))
        jobs = self._queued[task]
        job = jobs.popleft()
        self._number -= 1
        if not jobs:
            del self._queued[task]
        return job
