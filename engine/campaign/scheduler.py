"""Many tasks, one fleet: keeps it fed, keeps the database, tells a watcher.

Every task gets a batch, in the plan's order. Then each next batch goes to the task where it is expected to gain most:
the problem's weight times what it should take off the best score (`expectation`). Without a limit on time all get their
whole budget in the end, so that the order decides how good a campaign is that is stopped early, and how long the last
of them keeps a fleet that has nothing else to do: what a task evaluates depends on its own results alone.
"""

from __future__ import annotations

import hashlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Protocol

from gemmtune.engine.campaign.exchange import Exchange
from gemmtune.engine.campaign.expectation import expected_gain, regret_bound
from gemmtune.engine.campaign.finals import Finals
from gemmtune.engine.campaign.fleet import Finished, Fleet
from gemmtune.engine.campaign.limits import Clock, Limits
from gemmtune.engine.campaign.load import Gauged, Load
from gemmtune.engine.campaign.scale import OneScale
from gemmtune.engine.campaign.trials import score_of, trial_of
from gemmtune.engine.campaign.tuner import Tuner, check_takes
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.final import Final, Unsettled
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.search import Past, Search
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.description import TaskDescription
from gemmtune.engine.search.feasible import Enumeration
from gemmtune.engine.store.database import Database

__all__ = ["TaskSearch", "Watcher", "prepare", "run"]

_CONFIGS_A_WORKER = 128
"""Configs on their way at a time, for each worker: the binaries that may wait to be timed (`MeasuringFleet` keeps 64),
and as many for the builders of one GPU, which have some in hand and some next. A batch ends with its last config, and
samplers ask for few at first, so that it takes many tasks. What a task evaluates does not depend on it."""
_WAIT_SECONDS = 0.5


class Watcher(Protocol):
    """Who hears of a campaign's progress."""

    def began(self, searches: Sequence[TaskSearch]) -> None:
        """The campaign begins with these tasks."""

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """One evaluation is done; `known` when the database answered."""

    def ended(self, search: TaskSearch, why: str) -> None:
        """The search of one task is over, and why."""

    def settled(self, final: Final | Unsettled) -> None:
        """The final of one problem is over, or cannot be held."""

    def noticed(self, notice: str) -> None:
        """Something a person should know; one line."""

    def looked(self, load: Load | None, seconds_left: float | None) -> None:
        """How the fleet stands, where it can say so, and the time until searching ends; several times a second."""

    def waited(self) -> None:
        """Nothing finished for a moment."""


_Begin = Callable[[tuple[Past, ...]], Tuner]
"""Makes a search that is taught by other tasks."""


@dataclass(slots=True)
class TaskSearch:
    """One task of a running campaign.

    Its tuner is made when it is first asked for: of a hundred tasks the first are built and timed while the feasible
    configs of the others are still unknown.
    """

    task: Task
    """What is searched."""
    sampler: type[Sampler]
    """What searches it."""
    evaluations: int
    """Evaluations it will spend."""
    begin: _Begin
    """Makes the tuner."""
    teacher: Callable[[], tuple[Past, ...]] = tuple
    """Tells what other tasks taught before it began; asked when somebody wants to know."""
    heard: Sequence[Past] = ()
    """What others of the campaign have found by now, to be learned before it asks again."""
    known: dict[Config, Measurement] = field(default_factory=dict)
    """What the database held when the search began, and has not been asked for yet."""
    batch: list[Config] = field(default_factory=list)
    """The configs now being evaluated, in the order they were asked."""
    results: dict[Config, Measurement] = field(default_factory=dict)
    """Those of the batch that are done."""
    cut_short: bool = False
    """Whether time was over before it was."""
    _tuner: Tuner | None = None

    @property
    def tuner(self) -> Tuner:
        """Its search."""
        if self._tuner is None:
            self._tuner = self.begin(self.history)
        return self._tuner

    @property
    def history(self) -> tuple[Past, ...]:
        """What other tasks taught before it began."""
        return self.teacher()

    @property
    def feasible(self) -> int:
        """Configs there are."""
        return self.tuner.feasible

    def teach(self, teacher: Callable[[], tuple[Past, ...]]) -> None:
        """It begins anew, taught by other tasks."""
        self.teacher = teacher
        self._tuner = None

    def forgo(self) -> None:
        """If it has not begun, it never will."""
        self.begin, self.teacher = _nothing_to_search, tuple

    def close(self) -> None:
        """Let go of all but the trials: a campaign has thousands of searches."""
        self.forgo()
        self.tuner.close()

    @property
    def regret_bound(self) -> float:
        """How much slower than the best of the feasible set the best found may be, as a fraction."""
        return regret_bound(self.tuner.scores, self.tuner.evaluations, self.feasible)

    @property
    def expected_gain(self) -> float:
        """Time, or whatever is minimised, that the next batch should save where the problem is called."""
        gain = expected_gain(self.tuner.scores, self.tuner.evaluations, len(self.batch) or self.tuner.batch)
        return self.task.problem.weight * gain


def prepare(
    task: Task,
    space: Space,
    feasible: Iterable[Config],
    sampler: type[Sampler],
    budget: int,
    seed: int,
    batch: int,
    objectives: int = 1,
) -> TaskSearch:
    """A fresh search of one task; every task draws from its own stream of the campaign's seed.

    No more of the feasible configs than the budget are drawn before it begins.

    Raises:
        UsageError: the search has several objectives, and the sampler takes one.
    """
    check_takes(sampler, objectives)
    own_seed = int.from_bytes(hashlib.sha256(f"{seed}/{task.key}".encode()).digest()[:4], "big")
    configs = Enumeration(feasible)
    budget = configs.count(budget)

    def begin(history: tuple[Past, ...]) -> Tuner:
        found = configs.all()
        members = set(found)
        search = Search(
            params=space.params(task),
            feasible=found,
            seeds=tuple(config for config in space.seeds(task) if config in members),
            budget=budget,
            seed=own_seed,
            common_seed=seed,
            objectives=objectives,
            describe=TaskDescription(space, task),
            history=history,
        )
        return Tuner(sampler(search), budget, batch)

    return TaskSearch(task, sampler, budget, begin)


def _nothing_to_search(history: tuple[Past, ...]) -> Tuner:
    search = Search(params=(), feasible=(), seeds=(), budget=0, seed=0, history=history)
    return Tuner(registry.sampler("exhaustive")(search), 0)


def run(
    searches: Sequence[TaskSearch],
    fleet: Fleet,
    database: Database,
    objective: Objective,
    watcher: Watcher,
    *,
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    settle: bool = True,
    now: Callable[[], float] = time.monotonic,
) -> None:
    """Run every search to its end or to the limits, and hold each problem's final where the fleet can.

    Each measurement is in the database before its sampler hears of it, and what the database holds is not measured
    again: a campaign that was killed goes on where it was.

    Raises:
        ContractError: the fleet returned what was not submitted, or returned it again; a sampler or the objective
            broke its contract.
        GemmtuneError: the fleet has nothing left to measure with.
        StoreError: the database refused.
    """
    watcher.began(searches)
    database.tell(watcher.noticed)
    tasks = [search.task for search in searches]
    scale = OneScale(database)
    finals = Finals(tasks, fleet, database, objective, scale) if settle and fleet.settles else None
    clock = Clock(limits, fleet.parallel, now)
    _Run(fleet, database, objective, watcher, finals, clock, limits.regret, scale).run(searches)


_Ready = tuple[float, int, int, TaskSearch]
"""A search that has a batch to submit, behind what orders it: the most to gain, the least tried, the plan's first."""


class _Run:
    """One campaign on its way."""

    def __init__(
        self,
        fleet: Fleet,
        database: Database,
        objective: Objective,
        watcher: Watcher,
        finals: Finals | None,
        clock: Clock,
        regret: float | None,
        scale: OneScale,
    ) -> None:
        self._fleet = fleet
        self._gauge = fleet if isinstance(fleet, Gauged) else None
        self._database = database
        self._objective = objective
        self._watcher = watcher
        self._finals = finals
        self._clock = clock
        self._regret = regret
        self._scale = scale
        self._waiting: deque[TaskSearch] = deque()
        self._told: deque[TaskSearch] = deque()  # every config of the batch has its result
        self._ready: list[_Ready] = []  # a heap
        self._active: dict[Task, TaskSearch] = {}
        self._number: dict[Task, int] = {}
        self._exchange = Exchange((), fleet.protocol)
        self._most = _CONFIGS_A_WORKER * fleet.parallel
        self._left = 0  # evaluations of all tasks
        self._longest = 0  # evaluations of one; it has no more batches

    def run(self, searches: Sequence[TaskSearch]) -> None:
        self._waiting.extend(searches)
        self._number = {search.task: number for number, search in enumerate(searches)}
        self._exchange = Exchange(searches, self._fleet.protocol)
        self._left = sum(search.evaluations for search in searches)
        self._longest = max((search.evaluations for search in searches), default=0)
        thinking = self._give()
        while thinking or self._active or (self._finals and self._finals.open):
            finished = self._fleet.collect(0.0 if thinking else _WAIT_SECONDS)
            self._take(finished, waited=not thinking)
            thinking = self._give()

    def _give(self) -> bool:
        """Keep as many configs in work as keep the fleet busy; whether there is more to think about for that.

        A sampler is asked once at most: it may take a tenth of a second, and there are builders that have nothing to do
        until the fleet is looked at again. Where it has little, what was asked for goes before what has not begun.
        """
        thought = bool(self._told)
        if self._told:
            search = self._told.popleft()
            if self._ask(search):
                self._make_ready(search)
        self._release()
        while self._in_work < self._most and (self._waiting or self._ready):
            if self._clock.over:
                self._stop()
            elif self._ready and (not self._waiting or self._in_work < self._most // 2) and self._next.batch:
                self._submit(self._taken(self._next))
            elif thought:
                break
            else:
                thought = True
                self._think()
        return bool(self._told or (self._in_work < self._most and (self._waiting or self._ready)))

    def _think(self) -> None:
        """Begin the next search, or ask one that has learned from others."""
        if self._waiting:
            search = self._waiting.popleft()
            search.known = self._scale.known(search.task, self._fleet)
            if search.tuner.notice:
                self._watcher.noticed(f"{search.task.key}: {search.tuner.notice}")
            if self._ask(search) and search.tuner.evaluations:
                self._make_ready(search)  # it has begun in an earlier run
            elif search.batch:
                self._submit(search)
        else:
            search = self._taken(self._next)
            if self._ask(search):
                self._submit(search)
        self._release()

    @property
    def _next(self) -> TaskSearch:
        """Of those that are ready, the one with the most to gain; before it, one that would else end alone.

        A batch is back when the fleet has done about what was in work with it. So a task has no time to lose once its
        batches, one after the other, last as long as all that is left: near the end, and not before.
        """
        if self._longest * self._most >= self._left:
            longest = max((item[-1] for item in self._ready), key=_batches_left)
            if _batches_left(longest) * self._most >= self._left:
                return longest
        return self._ready[0][-1]

    def _taken(self, search: TaskSearch) -> TaskSearch:
        """It is ready no longer."""
        if self._ready[0][-1] is search:
            heappop(self._ready)
        else:
            self._ready = [item for item in self._ready if item[-1] is not search]
            heapify(self._ready)
        return search

    @property
    def _in_work(self) -> int:
        """Configs that the fleet has."""
        return sum(len(search.batch) - len(search.results) for search in self._active.values())

    def _release(self) -> None:
        """Let those go on that waited for what others found.

        Each learns when it is its turn: a hundred in a row take the driver 8 s, in which no builder gets anything.
        """
        for search in self._exchange.released():
            self._make_ready(search)

    def _stop(self) -> None:
        held = self._exchange.given_up()
        for search in self._waiting:
            search.forgo()
        for search in (*(search for *_, search in sorted(self._ready)), *self._waiting, *held):
            search.cut_short = True
            self._end(search, "time is over")
        self._waiting.clear()
        self._ready.clear()

    def _submit(self, search: TaskSearch) -> None:
        self._active[search.task] = search
        for config in search.batch:
            if config not in search.results:
                self._fleet.submit(search.task, config)

    def _take(self, finished: Sequence[Finished], *, waited: bool) -> None:
        for notice in self._fleet.notices():
            self._watcher.noticed(notice)
        if waited and not finished:
            self._watcher.waited()
        measured = [m for m in finished if isinstance(m, Measurement)]
        self._database.add(measured)
        measured = [self._scale.of(measurement) for measurement in measured]
        for measurement in measured:
            _accept(measurement, self._active.get(measurement.task), self._fleet)
            self._watcher.measured(measurement, score_of(measurement, self._objective), known=False)
        for final in finished:
            if not isinstance(final, Measurement) and self._finals is not None:
                self._finals.over(final)
                self._watcher.settled(final)
        self._watcher.looked(self._gauge.load() if self._gauge else None, self._clock.seconds_left)
        for task in dict.fromkeys(measurement.task for measurement in measured):
            search = self._active[task]
            if len(search.results) == len(search.batch):
                del self._active[task]
                self._told.append(search)

    def _make_ready(self, search: TaskSearch) -> None:
        item = (-search.expected_gain, search.tuner.evaluations, self._number[search.task], search)
        heappush(self._ready, item)

    def _ask(self, search: TaskSearch) -> bool:
        """Tell complete batches and ask for the next that is not all known; False when the search is done or waits."""
        while len(search.results) == len(search.batch):
            if search.batch:
                search.tuner.tell([trial_of(search.results[config], self._objective) for config in search.batch])
                self._left -= len(search.batch)
            search.results = {}
            search.batch = []
            if self._regret is not None and search.tuner.evaluations and search.regret_bound <= self._regret:
                self._end(search, f"regret at most {search.regret_bound:.2%}")
                return False
            if self._exchange.holds(search):
                return False
            if search.heard:
                search.tuner.learn(search.heard)
                search.heard = ()
            search.batch = search.tuner.next_batch()
            if not search.batch:
                self._end(search, "budget spent" if search.evaluations < search.feasible else "all evaluated")
                return False
            for config in search.batch:
                known = search.known.pop(config, None)
                if known is not None:
                    search.results[config] = known
                    self._watcher.measured(known, score_of(known, self._objective), known=True)
        return True

    def _end(self, search: TaskSearch, why: str) -> None:
        self._left -= search.evaluations - search.tuner.evaluations
        search.known = {}
        search.batch = []
        search.results = {}
        self._watcher.ended(search, why)
        self._exchange.ended(search)
        search.close()
        if self._finals is not None:
            self._finals.ended(search.task)


def _batches_left(search: TaskSearch) -> int:
    return -(-(search.evaluations - search.tuner.evaluations) // search.tuner.batch)


def _accept(measurement: Measurement, search: TaskSearch | None, fleet: Fleet) -> None:
    config = measurement.config
    if search is None or config not in search.batch or config in search.results:
        what = "again" if search and config in search.results else "which was not submitted"
        raise ContractError(f"fleet {type(fleet).__qualname__} returned {measurement.task.key} {config}, {what}")
    search.results[config] = measurement
