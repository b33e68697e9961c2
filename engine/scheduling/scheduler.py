"""Many tasks, one executor: keeps it fed, keeps the database, tells the callbacks.

Every task gets a batch, in the plan's order; who gets the next one, `turns` says. What a task evaluates depends on its
own results alone.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.finals import Finals
from gemmtune.engine.scheduling.scoring import score_of, trial_of
from gemmtune.engine.scheduling.stopping import Clock, Limits
from gemmtune.engine.scheduling.task_search import TaskSearch
from gemmtune.engine.scheduling.turns import Turns
from gemmtune.engine.seams.executor import Executor, Finished
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database

__all__ = ["run"]

_CONFIGS_PER_WORKER = 128
"""Configs on their way at a time, for each worker: binaries that wait to be timed, and what the builders of one GPU
have in hand and next. A batch ends with its last config, and samplers ask for few at first, so that it takes many
tasks. What a task evaluates does not depend on it."""
_WAIT_SECONDS = 0.5


def run(
    searches: Sequence[TaskSearch],
    executor: Executor,
    database: Database,
    objective: Objective,
    callbacks: Sequence[Callback],
    *,
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    settle: bool = True,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run every search to its end or to the limits, and hold each problem's final where the executor can.

    Each measurement is in the database before its sampler hears of it, and what the database holds is not measured
    again: a campaign that was killed goes on where it was.

    Raises:
        ContractError: the executor returned what was not submitted, or returned it again; a sampler or the objective
            broke its contract.
        GemmtuneError: the executor has nothing left to measure with.
        StoreError: the database refused.
    """
    for callback in callbacks:
        callback.on_begin(searches)
    database.send_notices_to(partial(notify, callbacks))
    _Scheduler(searches, executor, database, objective, callbacks, limits, settle=settle, now=now).run()


class _Scheduler:
    """The searches of one campaign on one executor."""

    def __init__(
        self,
        searches: Sequence[TaskSearch],
        executor: Executor,
        database: Database,
        objective: Objective,
        callbacks: Sequence[Callback],
        limits: Limits,
        *,
        settle: bool,
        now: Callable[[], float],
    ) -> None:
        self._executor = executor
        self._database = database
        self._objective = objective
        self._callbacks = callbacks
        self._normalization = GpuNormalization(database)
        tasks = [search.task for search in searches]
        self._finals = (
            Finals(tasks, executor, database, objective, self._normalization)
            if settle and executor.holds_finals
            else None
        )
        self._clock = Clock(limits, executor.parallel, now)
        self._regret = limits.regret
        self._waiting = deque(searches)
        self._complete: deque[TaskSearch] = deque()  # every config of the batch has its result
        self._active: dict[Task, TaskSearch] = {}
        self._most = _CONFIGS_PER_WORKER * executor.parallel
        self._turns = Turns(searches, self._most)

    def run(self) -> None:
        thinking = self._give()
        while thinking or self._active or (self._finals and self._finals.open):
            finished = self._executor.collect(0.0 if thinking else _WAIT_SECONDS)
            self._take(finished)
            thinking = self._give()

    def _give(self) -> bool:
        """Keep as many configs in work as keep the executor busy; whether there is more to think about for that.

        A sampler is asked once at most: it may take a tenth of a second, and there are builders that have nothing to do
        until the executor is looked at again. Where it has little, what was asked for goes before what has not begun.
        """
        thought = bool(self._complete)
        if self._complete:
            search = self._complete.popleft()
            if self._ask(search):
                self._turns.add(search)
        while self._in_work < self._most and (self._waiting or self._turns):
            if self._clock.over:
                self._stop()
            elif self._turns and (not self._waiting or self._in_work < self._most // 2):
                self._submit(self._turns.take())
            elif thought:
                break
            else:
                thought = True
                self._begin_next()
        return bool(self._complete or (self._in_work < self._most and (self._waiting or self._turns)))

    def _begin_next(self) -> None:
        """Begin the next search of the plan."""
        search = self._waiting.popleft()
        search.known = self._normalization.known(search.task, self._executor)
        if search.tuner.notice:
            notify(self._callbacks, f"{search.task.key}: {search.tuner.notice}")
        if self._ask(search) and search.tuner.evaluations:
            self._turns.add(search)  # it has begun in an earlier run
        elif search.batch:
            self._submit(search)

    @property
    def _in_work(self) -> int:
        """Configs that the executor has."""
        return sum(len(search.batch) - len(search.results) for search in self._active.values())

    def _stop(self) -> None:
        for search in (*self._turns.clear(), *self._waiting):
            search.cut_short = True
            self._end(search, "time is over")
        self._waiting.clear()

    def _submit(self, search: TaskSearch) -> None:
        self._active[search.task] = search
        for config in search.batch:
            if config not in search.results:
                self._executor.submit(search.task, config)

    def _take(self, finished: Sequence[Finished]) -> None:
        measured = [m for m in finished if isinstance(m, Measurement)]
        self._database.add(measured)
        measured = [self._normalization.normalize(measurement) for measurement in measured]
        for measurement in measured:
            _accept(measurement, self._active.get(measurement.task), self._executor)
            self._report(measurement, known=False)
        for final in finished:
            if not isinstance(final, Measurement) and self._finals is not None:
                self._finals.over(final)
                for callback in self._callbacks:
                    callback.on_final(final)
        load = self._executor.load()
        for callback in self._callbacks:
            callback.on_load(load, self._clock.seconds_left)
        for task in dict.fromkeys(measurement.task for measurement in measured):
            search = self._active[task]
            if len(search.results) == len(search.batch):
                del self._active[task]
                self._complete.append(search)

    def _report(self, measurement: Measurement, *, known: bool) -> None:
        score = score_of(measurement, self._objective)
        for callback in self._callbacks:
            callback.on_measurement(measurement, score, known=known)

    def _ask(self, search: TaskSearch) -> bool:
        """Tell complete batches and ask for the next that is not all known; False when the search is done."""
        while len(search.results) == len(search.batch):
            if search.batch:
                search.tuner.tell([trial_of(search.results[config], self._objective) for config in search.batch])
                self._turns.spent(len(search.batch))
            search.results = {}
            search.batch = []
            if self._regret is not None and search.tuner.evaluations and search.regret_bound <= self._regret:
                self._end(search, f"regret at most {search.regret_bound:.2%}")
                return False
            search.batch = search.tuner.next_batch()
            if not search.batch:
                self._end(search, "budget spent" if search.budget < search.feasible else "all evaluated")
                return False
            for config in search.batch:
                known = search.known.pop(config, None)
                if known is not None:
                    search.results[config] = known
                    self._report(known, known=True)
        return True

    def _end(self, search: TaskSearch, why: str) -> None:
        search.close()
        self._turns.spent(search.budget - search.tuner.evaluations)
        for callback in self._callbacks:
            callback.on_search_end(search, why)
        if self._finals is not None:
            self._finals.ended(search.task)


def _accept(measurement: Measurement, search: TaskSearch | None, executor: Executor) -> None:
    config = measurement.config
    if search is None or config not in search.batch or config in search.results:
        what = "again" if search and config in search.results else "which was not submitted"
        raise ContractError(f"executor {type(executor).__qualname__} returned {measurement.task.key} {config}, {what}")
    search.results[config] = measurement
