"""Hands jobs to workers; a worker that is lost costs none of its jobs."""

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from gemmtune.engine.processes.process_pool import Notify, Outcome, log_notice
from gemmtune.engine.records.errors import GemmtuneError

J = TypeVar("J")
R = TypeVar("R")
_K = TypeVar("_K", bound=Hashable)

_AHEAD = 2
"""Jobs that a worker holds per job that it runs, so that the next one is there when the last one ends."""

_JOBS_PER_SETUP = 64
"""Waiting jobs of one group that are worth another worker's set-up, which makes a problem's operands and its reference.
Chosen: 64 jobs take 0.12 s of one GPU (see experiments/measurement)."""


class Worker(Protocol[J, R]):
    """Runs jobs somewhere: a `ProcessPool` on this machine, or an actor on another one."""

    @property
    def size(self) -> int:
        """Jobs that run at a time; 0 before the worker has started and once it is lost."""

    def submit(self, job: J) -> None:
        """Queue a job and return at once."""

    def collect(self) -> list[Outcome[J, R]]:
        """Return the jobs that finished or were lost since the last call, each as it was submitted; never wait.

        Raises:
            GemmtuneError: something cannot start; if `size` is 0 the worker and its jobs are lost.
        """

    def close(self) -> None:
        """End every process and drop unfinished jobs."""


@dataclass(frozen=True, slots=True)
class JobResult(Generic[J, R]):
    """A finished job and its worker."""

    outcome: Outcome[J, R]
    """Result of the job, or why it was lost."""
    worker: str
    """Name of the worker that ran the job."""


@dataclass(slots=True)
class _Assignment(Generic[J, R]):
    """A worker and its jobs."""

    worker: Worker[J, R]
    jobs: dict[int, J] = field(default_factory=dict)
    """Unfinished jobs by identity, in the order in which they were handed out."""

    @property
    def load(self) -> float:
        return len(self.jobs) / self.worker.size if self.worker.size else float("inf")


class Dispatcher(Generic[J, R]):
    """Hands each job to the least loaded worker, and to another one when that worker is lost."""

    def __init__(
        self,
        workers: Mapping[str, Worker[J, R]],
        *,
        ahead: int = _AHEAD,
        affinity: Callable[[J], Hashable] | None = None,
        notify: Notify = log_notice,
    ) -> None:
        """Take the workers, which `close` ends.

        Args:
            workers: by name.
            ahead: jobs that a worker holds per job that it runs, the running one included; others wait here.
            affinity: returns what a worker sets itself up for to run a job. Jobs of one group go to one worker, until
                enough wait to be worth another worker's set-up. None if no job needs a set-up.
            notify: receives a line per worker that is lost or excluded.
        """
        self.boards: dict[str, str] = {}
        """UUIDs of the workers' GPUs, by worker, as far as they are known before one measures."""
        self.queued = 0
        """Jobs that wait elsewhere until there is room for them here."""
        self._assignments = {name: _Assignment(worker) for name, worker in workers.items()}
        self._ahead = ahead
        self._affinity = affinity
        self._notify = notify
        self._waiting: dict[Hashable, deque[J]] = {}
        self._addressed: dict[str, deque[J]] = {}
        self._set_up: dict[Hashable, list[str]] = {}
        self._idle: set[str] = set()  # workers that no waiting job is for
        self._last_error: GemmtuneError | None = None
        self._pending = 0

    @property
    def pending(self) -> int:
        """Number of jobs that were submitted and not yet collected."""
        return self._pending

    @property
    def room(self) -> int:
        """Number of jobs that workers would take at once."""
        return self._ahead * sum(each.worker.size for each in self._assignments.values()) - self._pending

    @property
    def busy(self) -> dict[str, bool]:
        """Whether each worker has a job, by name."""
        return {name: bool(each.jobs) for name, each in self._assignments.items()}

    def submit(self, job: J, to: str = "") -> None:
        """Queue a job and hand it out if a worker has room; `to` names the worker that runs it unless it is lost."""
        if to in self._assignments:
            self._addressed.setdefault(to, deque()).append(job)
            self._idle.discard(to)
        else:
            group = self._group(job)
            jobs = self._waiting.setdefault(group, deque())
            jobs.append(job)
            self._idle.difference_update(self._set_up.get(group, ()))
            if self._is_worth_a_set_up(group, jobs):
                self._idle.clear()
        self._pending += 1
        self._hand_out()

    def collect(self) -> list[JobResult[J, R]]:
        """Return the jobs that finished or were lost since the last call, without waiting.

        Raises:
            GemmtuneError: no worker is left. A call that has results returns them first.
        """
        results = []
        for name, each in tuple(self._assignments.items()):
            try:
                outcomes = each.worker.collect()
            except GemmtuneError as error:
                self._on_error(name, each.worker, error)
                continue
            for outcome in outcomes:
                del each.jobs[id(outcome.job)]
                results.append(JobResult(outcome, name))
        self._pending -= len(results)
        self._hand_out()
        if self._last_error is not None and not self._assignments and not results:
            raise self._last_error
        return results

    def add(self, name: str, worker: Worker[J, R]) -> None:
        """Add a worker, which takes jobs from the next call on."""
        self._assignments[name] = _Assignment(worker)

    def release(self, name: str) -> None:
        """Close a worker that has no job."""
        if name in self._assignments and not self._assignments[name].jobs:
            self._exclude(name)

    def quarantine(self, name: str, reason: str) -> None:
        """Give a worker no more jobs and its jobs to the others; the last worker stays."""
        if name in self._assignments and len(self._assignments) > 1:
            self._notify(f"{name} is quarantined: {reason}; its jobs go elsewhere")
            self._exclude(name)

    def close(self) -> None:
        """Close every worker; an excluded one is closed already."""
        for each in self._assignments.values():
            each.worker.close()
        self._assignments.clear()
        self._waiting.clear()
        self._addressed.clear()

    def _group(self, job: J) -> Hashable:
        return self._affinity(job) if self._affinity else None

    def _hand_out(self) -> None:
        """Give each worker a job in turn, the least loaded first, until no worker takes another one."""
        waits = bool(self._waiting or self._addressed)
        free = [named for named in self._assignments.items() if waits and self._may_take(*named)]
        by_load = sorted(free, key=lambda named: named[1].load)
        gave = True
        while gave and (self._waiting or self._addressed):
            gave = False
            for name, each in by_load:
                gave |= self._give_one(name, each)
                if not (self._waiting or self._addressed):
                    return

    def _may_take(self, name: str, each: _Assignment[J, R]) -> bool:
        return name not in self._idle and len(each.jobs) < self._ahead * each.worker.size

    def _give_one(self, name: str, each: _Assignment[J, R]) -> bool:
        if not self._may_take(name, each):
            return False
        job = self._next_for(name)
        if job is None:
            self._idle.add(name)
            return False
        each.jobs[id(job)] = job
        each.worker.submit(job)
        return True

    def _next_for(self, name: str) -> J | None:
        """Remove and return the oldest job that is for the worker alone, that it is set up for, or worth its set-up."""
        if name in self._addressed:
            return _popped(self._addressed, name)
        for group in self._waiting:
            if name in self._set_up.get(group, ()):
                return _popped(self._waiting, group)
        for group, jobs in self._waiting.items():
            if self._is_worth_a_set_up(group, jobs):
                if self._affinity:
                    self._set_up.setdefault(group, []).append(name)
                return _popped(self._waiting, group)
        return None

    def _is_worth_a_set_up(self, group: Hashable, jobs: deque[J]) -> bool:
        return len(jobs) >= _JOBS_PER_SETUP * len(self._set_up.get(group, ()))

    def _on_error(self, name: str, worker: Worker[J, R], error: GemmtuneError) -> None:
        if worker.size:
            self._notify(str(error))
            return
        self._last_error = error
        if len(self._assignments) > 1:
            self._notify(f"{error}; the others go on")
        self._exclude(name)

    def _exclude(self, name: str) -> None:
        """Close a worker, so that others may have what it held, and queue its jobs first."""
        each = self._assignments.pop(name)
        each.worker.close()
        self._idle.clear()
        for workers in self._set_up.values():
            if name in workers:
                workers.remove(name)
        for job in reversed([*each.jobs.values(), *self._addressed.pop(name, ())]):
            self._waiting.setdefault(self._group(job), deque()).appendleft(job)


def _popped(queues: dict[_K, deque[J]], key: _K) -> J:
    """Remove and return the first job of a queue, and the queue with its last one."""
    jobs = queues[key]
    job = jobs.popleft()
    if not jobs:
        del queues[key]
    return job
