"""Run many searches on one executor: keep it busy, store every measurement, inform the callbacks."""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from functools import partial

from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.io.blame import STOPS
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import GemmtuneError, StoreError
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict, Trust
from gemmtune.engine.scheduling.callbacks import Callback, notify
from gemmtune.engine.scheduling.finals import Finals
from gemmtune.engine.scheduling.gain import Gain
from gemmtune.engine.scheduling.orders import Orders
from gemmtune.engine.scheduling.rivals import Rivals
from gemmtune.engine.scheduling.shared_work import SharedWork
from gemmtune.engine.scheduling.stopping import Limits
from gemmtune.engine.scheduling.task_priority import TaskPriority
from gemmtune.engine.scheduling.task_search import TaskSearch, accept
from gemmtune.engine.scheduling.tuner import score_of, trial_of
from gemmtune.engine.scheduling.withdrawn import RowsWithdrawn, Withdrawals, stored_canaries
from gemmtune.engine.seams.executor import Executor, Finished
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.store.database import Database

_CONFIGS_PER_WORKER = 128
"""Submitted configs per worker, at most: those that builders have and those that wait to be timed.

A batch ends with its last config, and samplers ask for few configs at first. Many tasks keep the executor busy."""
_SHARED_PER_WORKER = 8
"""Configs per worker that a driver holds ready at least, where other drivers could evaluate them as well."""
_WAIT_SECONDS = 0.5
_GATHER_SECONDS = 0.02  # longest wait for a further result of several GPUs before those that are there are stored
_GATHERED_PER_WORKER = 2  # results per GPU that are stored at a time, at least, as long as they come that fast
_THINKING_SECONDS = 0.02  # between two looks whether another process has a search's next batch
_MOST_THINKING = 8  # searches per worker whose next batch is waited for before further ones begin
_MOST_OPEN = 512  # searches that are begun regardless where all should advance alike; each takes memory until it ends


class Scheduler:
    """The searches of one campaign on one executor.

    A measurement is stored before its sampler learns of it. A stored measurement is not made again: a campaign that
    was killed continues where it was. The batches of a task depend on its own results, its end on its problem's.
    """

    def __init__(
        self,
        searches: Sequence[TaskSearch],
        executor: Executor,
        database: Database,
        objective: Objective,
        callbacks: Sequence[Callback],
        *,
        limits: Limits = Limits(),  # noqa: B008 (immutable)
        orders: Orders | None = None,
        hold_finals: bool = True,
        finalists: Collection[tuple[Task, Config]] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Start the time of the campaign.

        Args:
            searches: in the plan's order; each is closed when it ends.
            executor: evaluates the configs.
            database: stores the measurements and finals, and answers what it holds already.
            objective: scores the measurements.
            callbacks: follow the campaign.
            limits: end searching early.
            orders: pause or cancel the campaign while it runs; None to let nobody do so.
            hold_finals: whether the best configs of each problem meet in a final.
            finalists: configs that meet in the finals instead, baselines included; None for the best.
            now: returns the seconds of a monotonic clock.
        """
        self._gain = Gain(now)
        callbacks = [*callbacks, self._gain]
        for callback in callbacks:
            callback.on_begin(searches)
        database.send_notices_to(partial(notify, callbacks))
        self._executor = executor
        self._database = database
        self._objective = objective
        self._callbacks = callbacks
        self._normalization = GpuNormalization(database)
        self._shared = SharedWork(database, executor, self._normalization, partial(notify, callbacks), now)
        self._finals: Finals | None = None
        if hold_finals and executor.holds_finals:
            tasks = [search.task for search in searches]
            self._finals = Finals(tasks, executor, database, objective, self._normalization, self._shared, finalists)
        self._limits = limits
        self._orders = orders or Orders()
        self._rivals = Rivals(searches)
        self._gpus = executor.parallel
        self._now = now
        self._started = self._seen = now()
        self._most_in_work = _CONFIGS_PER_WORKER * self._gpus
        self._unfinished = {search.task: search for search in searches}
        self._withdrawals = Withdrawals(database, executor, {search.task.device for search in searches}, now)
        self._waiting = deque(searches)  # searches that have not begun
        self._ready = TaskPriority(searches)  # searches with a batch to submit
        self._active: dict[Task, TaskSearch] = {}  # searches with a submitted batch
        self._complete: deque[TaskSearch] = deque()  # searches whose whole batch has its results
        self._thinking: list[TaskSearch] = []  # searches whose next batch another process works on

    def run(self) -> None:
        """Run every search to its end or to the limits, and hold each problem's final where the executor can.

        Raises:
            ContractError: the executor returned what was not submitted, or returned it again; a sampler or the
                objective broke its contract.
            GemmtuneError: the executor has nothing left to measure with.
            RowsWithdrawn: a board was found to be bad, and the database is without what it measured.
            StoreError: the database refused.
        """
        tasks = [search.task for search in self._waiting]
        self._executor.compare_with(stored_canaries(tasks, self._executor, self._database))
        first_of_space = {search.task.space: search for search in reversed(self._waiting)}
        more = self._submit_batches()
        # The executor's processes started with the first config. They import for seconds, and samplers learn meanwhile.
        for search in first_of_space.values():
            if search in self._waiting:
                search.begin()
        try:
            while self._is_open or self._executor.check_boards():
                self._collect(0.0 if more else _THINKING_SECONDS if self._thinking else _WAIT_SECONDS)
                if self._withdrawals.are_new():
                    self._drain()
                self._look_elsewhere(idle=not more)
                more = self._submit_batches()
            self._withdrawals.is_due = True
            if self._withdrawals.are_new():
                self._drain()
        except (*STOPS, StoreError):
            self._database.stop_waiting()
            raise
        finally:  # a server that died may have forgotten that some were given back
            with suppress(StoreError):
                self._shared.release_all()

    def _drain(self) -> None:
        """Store what the executor still has, end the searches, and say that they begin again.

        Raises:
            RowsWithdrawn: always.
        """
        while self._in_work or (self._finals and self._finals.running):
            self._collect(_WAIT_SECONDS)
        for search in self._unfinished.values():
            search.cut_short = True
            for callback in self._callbacks:
                callback.on_search_end(search, "it begins again, without what was withdrawn")
        raise RowsWithdrawn

    def _submit_batches(self) -> bool:
        """Keep the executor busy, and return whether another call would submit more.

        One sampler at most is asked per call. It may take a tenth of a second, and the executor must be looked at
        before the next one. While little is in work, batches at hand go before searches that have not begun.
        """
        self._note_time()
        thinking, self._thinking = self._thinking, []
        for search in thinking:
            (self._thinking if search.is_thinking else self._complete).append(search)
        asked = bool(self._complete)
        over = self._over
        if self._orders.is_paused and not over:
            return False
        if self._complete and self._ask(search := self._complete.popleft()):
            self._ready.add(search)
        if over:
            self._stop(over)
        while not self._is_full and (self._waiting or self._ready):
            if self._ready and (not self._waiting or self._in_work < self._most_in_work // 2):
                self._submit(self._ready.take())
            elif asked or not self._may_begin:
                break
            else:
                asked = True
                self._begin_next()
        return bool(self._complete or (not self._is_full and (self._may_begin or self._ready)))

    @property
    def _may_begin(self) -> bool:
        """Whether a search has not begun, and few others wait for a batch, or each should have one in time."""
        alike = self._limits.may_end_early and len(self._unfinished) - len(self._waiting) < _MOST_OPEN
        return bool(self._waiting) and (alike or len(self._thinking) < _MOST_THINKING * self._gpus)

    def _begin_next(self) -> None:
        """Begin the next search of the plan, and submit its first batch."""
        search = self._waiting.popleft()
        search.begin()
        if self._ask(search):
            send = self._ready.add if search.evaluations else self._submit  # an earlier run's has had its turn
            send(search)

    @property
    def _is_open(self) -> bool:
        """Whether a search or a final is not over."""
        searches = self._waiting or self._ready or self._active or self._complete or self._thinking
        return bool(searches or (self._finals and self._finals.open))

    @property
    def _over(self) -> str:
        """Reason why searching is over; empty where it is not."""
        if self._orders.is_cancelled:
            return "cancelled"
        if self._seconds_left == 0.0:
            return "time is over"
        least, gained = self._limits.stop_gain, self._gain.per_hour
        return "gains too little" if least and gained is not None and gained < least * self._gpus else ""

    def _note_time(self) -> None:
        """Let the limits of time stand still during a pause, and look at the gain since every search began."""
        now = self._now()
        if self._orders.is_paused:
            self._started += now - self._seen
        if self._orders.is_paused or self._waiting:
            self._gain.start()
        self._seen = now

    @property
    def _in_work(self) -> int:
        """Number of configs that the executor has."""
        return sum(search.in_work for search in self._active.values())

    @property
    def _is_full(self) -> bool:
        """Whether the executor has enough: where drivers share the work, no more than keeps its builders busy."""
        if self._shared.is_alone or self._in_work >= self._most_in_work:
            return self._in_work >= self._most_in_work
        load, least = self._executor.load(), _SHARED_PER_WORKER * self._gpus
        return self._in_work >= least if load is None else load.queued >= max(load.building, least)

    @property
    def _seconds_left(self) -> float | None:
        return self._limits.seconds_left(self._gpus, self._now() - self._started)

    def _stop(self, reason: str) -> None:
        """End every search that has nothing submitted."""
        apart = [self._active.pop(task) for task, search in list(self._active.items()) if not search.in_work]
        thinking, self._thinking = self._thinking, []
        for search in (*apart, *thinking, *self._ready.clear(), *self._rivals.clear(), *self._waiting):
            search.cut_short = True
            self._end(search, reason)
        if self._orders.is_cancelled and self._finals is not None:
            self._finals.leave()
        self._waiting.clear()

    def _submit(self, search: TaskSearch) -> None:
        self._active[search.task] = search
        self._share(search, [config for config in search.batch if config not in search.results])

    def _share(self, search: TaskSearch, configs: Sequence[Config]) -> None:
        """Submit the configs of a search's batch that no other driver evaluates; the others are waited for."""
        mine, stored = self._shared.take(search.task, configs)
        search.elsewhere |= set(configs)
        search.elsewhere.difference_update(mine)
        self._take_known(stored)
        for config in mine:
            self._executor.submit(search.task, config)

    def _take_known(self, stored: Sequence[Measurement]) -> None:
        """Add what other drivers have stored to the results of the batches that wait for it."""
        for measurement in stored:
            search = self._active[measurement.task]
            search.elsewhere.discard(measurement.config)
            search.results[measurement.config] = measurement
            self._report(measurement, known=True)
        self._complete_those(measurement.task for measurement in stored)

    def _look_elsewhere(self, *, idle: bool) -> None:
        """Look now and then for what other drivers evaluate; wait for it where nothing else is to be done."""
        waiting = {task: search.elsewhere for task, search in self._active.items() if search.elsewhere}
        finals = self._finals if self._finals and self._finals.waits else None
        waits = bool(waiting or finals)
        paused = self._orders.is_paused and not self._over
        if (waits or paused) and idle and not self._in_work:
            self._shared.wait(_WAIT_SECONDS)
        if not self._shared.is_due(waits):
            return
        self._take_known(self._shared.stored(waiting))
        take_over = not paused and self._shared.may_take_over()
        for task in waiting if take_over else ():
            if (search := self._active.get(task)) is not None:
                self._share(search, sorted(search.elsewhere, key=search.batch.index))
        if finals is not None:
            finals.look(take_over=take_over)

    def _collect(self, timeout_seconds: float) -> None:
        """Store what has finished, and find the batches that are complete."""
        finished, stop = self._gathered(timeout_seconds)
        stored = [m for m in finished if isinstance(m, Measurement)]
        self._database.add(stored)
        self._shared.release(stored)
        for measurement in (measured := list(map(self._normalization.normalize, stored))):
            accept(measurement, self._active.get(measurement.task), self._executor)
            self._report(measurement, known=False)
        for other in finished:
            if isinstance(other, BoardVerdict):
                self._heed(other)
            elif not isinstance(other, Measurement) and self._finals is not None:
                self._finals.add(other)
                for callback in self._callbacks:
                    callback.on_final(other)
        load = self._executor.load()
        for callback in self._callbacks:
            callback.on_load(load, self._seconds_left)
        self._complete_those(measurement.task for measurement in measured)
        if stop is not None:
            raise stop

    def _gathered(self, timeout_seconds: float) -> tuple[list[Finished], BaseException | None]:
        """Return what has finished, of several GPUs some at a time where nothing else is to be done, and any stop."""
        finished = [*self._executor.collect(timeout_seconds)]
        enough = min(_GATHERED_PER_WORKER * self._gpus, self._in_work) if timeout_seconds and self._gpus > 1 else 0
        more = finished
        try:
            while more and len(finished) < enough:
                more = self._executor.collect(_GATHER_SECONDS)
                finished += more
        except GemmtuneError:
            pass  # the next call raises it again; what there is, is kept
        except STOPS as stop:
            return finished, stop
        return finished, None

    def _heed(self, verdict: BoardVerdict) -> None:
        """Store a verdict on a board, and withdraw what a bad one measured since its last good check."""
        boards = self._database.boards
        boards.add(verdict)
        if verdict.trust is Trust.QUARANTINED:
            since, workers = verdict.since, [verdict.worker]
            numbers = boards.withdraw(verdict.board, verdict.reason, since=since, workers=workers)
            named = zip(numbers, ("measurement", "final"), strict=True)
            if what := " and ".join(f"{number} {name}{'s' * (number > 1)}" for number, name in named if number):
                self._withdrawals.is_due = True
                line = f"{what} of {verdict.board} since {since} are withdrawn, and made again elsewhere"
                notify(self._callbacks, line)

    def _complete_those(self, tasks: Iterable[Task]) -> None:
        """Find the complete batches among those of tasks that got a result."""
        for task in dict.fromkeys(tasks):
            if len(self._active[task].results) == len(self._active[task].batch):
                self._complete.append(self._active.pop(task))

    def _report(self, measurement: Measurement, *, known: bool) -> None:
        score = score_of(measurement, self._objective)
        for callback in self._callbacks:
            callback.on_measurement(measurement, score, known=known)

    def _ask(self, search: TaskSearch) -> bool:
        """Pass complete batches to the sampler and ask for the next that is not all known; False if the search ends."""
        while len(search.results) == len(search.batch):
            if search.batch:
                search.tell([trial_of(search.results[config], self._objective) for config in search.batch])
            search.results = {}
            search.batch = []
            regret = self._limits.regret
            if regret is not None and search.evaluations and search.regret_bound <= regret:
                self._end(search, f"regret at most {search.regret_bound:.2%}")
                return False
            if not search.done:
                verdict = self._rivals.judge(search)
                self._complete.extend(self._rivals.free(search))
                if verdict:
                    self._end(search, verdict)
                if verdict != "":
                    return False
            if search.is_thinking:
                self._thinking.append(search)
                return False
            search.batch = search.next_batch()
            if search.notice and not search.evaluations:
                notify(self._callbacks, f"{search.task.key}: {search.notice}")
            if not search.batch:
                self._end(search, "budget spent" if search.budget < search.feasible else "all evaluated")
                return False
            if all(config in search.held for config in search.batch):
                normalize = self._normalization.normalize
                search.results = {config: normalize(search.held[config]) for config in search.batch}
            else:
                search.results = self._shared.known(search)
            for measurement in search.results.values():
                self._report(measurement, known=True)
        return True

    def _end(self, search: TaskSearch, reason: str) -> None:
        search.close()
        del self._unfinished[search.task]
        self._rivals.end(search)
        self._complete.extend(self._rivals.free(search))
        for callback in self._callbacks:
            callback.on_search_end(search, reason)
        if self._finals is not None and not self._orders.is_cancelled:
            self._finals.search_ended(search.task)
