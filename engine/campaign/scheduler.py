"""Many tasks, one fleet: keeps it fed, keeps the database, tells a watcher."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gemmtune.engine.campaign.finals import Finals
from gemmtune.engine.campaign.fleet import Finished, Fleet
from gemmtune.engine.campaign.tuner import Tuner
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.final import Final, Unsettled
from gemmtune.engine.records.measurement import Measurement, Status, Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.objective import Objective
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.store.database import Database

__all__ = ["TaskSearch", "Watcher", "prepare", "run"]

_TASKS_AT_ONCE = 4  # while one task's batch is timed, the others' build
_WAIT_SECONDS = 0.5


class Watcher(Protocol):
    """Who hears of a campaign's progress."""

    def began(self, searches: Sequence[TaskSearch]) -> None:
        """The campaign begins with these tasks."""

    def measured(self, measurement: Measurement, score: float | None, *, known: bool) -> None:
        """One evaluation is done; `known` when the database answered."""

    def settled(self, final: Final | Unsettled) -> None:
        """The final of one problem is over, or cannot be held."""

    def noticed(self, notice: str) -> None:
        """Something a person should know; one line."""

    def waited(self) -> None:
        """Nothing finished for a moment."""


@dataclass(slots=True)
class TaskSearch:
    """One task of a running campaign."""

    task: Task
    """What is searched."""
    tuner: Tuner
    """Its search."""
    evaluations: int
    """Evaluations it will spend."""
    known: dict[Config, Measurement] = field(default_factory=dict)
    """What the database already holds."""
    batch: list[Config] = field(default_factory=list)
    """The configs now being evaluated, in the order they were asked."""
    results: dict[Config, Measurement] = field(default_factory=dict)
    """Those of the batch that are done."""


def prepare(
    task: Task,
    space: Space,
    feasible: tuple[Config, ...],
    sampler: type[Sampler],
    budget: int,
    seed: int,
    batch: int,
    objectives: int = 1,
) -> TaskSearch:
    """A fresh search of one task; every task draws from its own stream of the campaign's seed."""
    own_seed = int.from_bytes(hashlib.sha256(f"{seed}/{task.key}".encode()).digest()[:4], "big")
    budget = min(budget, len(feasible))
    members = set(feasible)
    search = Search(
        params=space.params(task),
        feasible=feasible,
        seeds=tuple(config for config in space.seeds(task) if config in members),
        budget=budget,
        seed=own_seed,
        objectives=objectives,
    )
    return TaskSearch(task, Tuner(sampler(search), budget, batch), budget)


def run(
    searches: Sequence[TaskSearch],
    fleet: Fleet,
    database: Database,
    objective: Objective,
    watcher: Watcher,
    *,
    settle: bool = True,
) -> None:
    """Run every search to its end, and hold each problem's final where the fleet can.

    Each measurement is in the database before its sampler hears of it, and what the database holds is not measured
    again: a campaign that was killed goes on where it was.

    Raises:
        ContractError: the fleet returned what was not submitted, or returned it again; a sampler or the objective
            broke its contract.
        GemmtuneError: the fleet has nothing left to measure with.
        StoreError: the database refused.
    """
    watcher.began(searches)
    for search in searches:
        toolchain, protocol = fleet.toolchain(search.task), fleet.protocol(search.task)
        search.known = database.known(search.task, protocol, fleet.evidence, toolchain)
    tasks = [search.task for search in searches]
    finals = Finals(tasks, fleet, database, objective) if settle and fleet.settles else None
    _Run(fleet, database, objective, watcher, finals).run(searches)


class _Run:
    """One campaign on its way."""

    def __init__(
        self, fleet: Fleet, database: Database, objective: Objective, watcher: Watcher, finals: Finals | None
    ) -> None:
        self._fleet = fleet
        self._database = database
        self._objective = objective
        self._watcher = watcher
        self._finals = finals
        self._active: dict[Task, TaskSearch] = {}

    def run(self, searches: Sequence[TaskSearch]) -> None:
        waiting = list(reversed(searches))
        while waiting or self._active or (self._finals and self._finals.open):
            while waiting and len(self._active) < _TASKS_AT_ONCE:
                search = waiting.pop()
                self._active[search.task] = search
                self._go_on(search)
            if self._active or (self._finals and self._finals.open):
                self._take(self._fleet.collect(_WAIT_SECONDS))

    def _take(self, finished: Sequence[Finished]) -> None:
        for notice in self._fleet.notices():
            self._watcher.noticed(notice)
        if not finished:
            self._watcher.waited()
        measured = [m for m in finished if isinstance(m, Measurement)]
        self._database.add(measured)
        for measurement in measured:
            _accept(measurement, self._active.get(measurement.task), self._fleet)
            self._watcher.measured(measurement, _score(self._objective, measurement), known=False)
        for final in finished:
            if not isinstance(final, Measurement) and self._finals is not None:
                self._finals.over(final)
                self._watcher.settled(final)
        for task in dict.fromkeys(measurement.task for measurement in measured):
            self._go_on(self._active[task])

    def _go_on(self, search: TaskSearch) -> None:
        if not _advance(search, self._fleet, self._objective, self._watcher):
            del self._active[search.task]
            if self._finals is not None:
                self._finals.ended(search.task)


def _accept(measurement: Measurement, search: TaskSearch | None, fleet: Fleet) -> None:
    config = measurement.config
    if search is None or config not in search.batch or config in search.results:
        what = "again" if search and config in search.results else "which was not submitted"
        raise ContractError(f"fleet {type(fleet).__qualname__} returned {measurement.task.key} {config}, {what}")
    search.results[config] = measurement


def _advance(search: TaskSearch, fleet: Fleet, objective: Objective, watcher: Watcher) -> bool:
    """Tell complete batches and submit the next; False when the search is done."""
    while len(search.results) == len(search.batch):
        if search.batch:
            search.tuner.tell([_trial(objective, search.results[config]) for config in search.batch])
        search.results = {}
        search.batch = search.tuner.next_batch()
        if not search.batch:
            return False
        for config in search.batch:
            known = search.known.get(config)
            if known is None:
                fleet.submit(search.task, config)
            else:
                search.results[config] = known
                watcher.measured(known, _score(objective, known), known=True)
    return True


def _trial(objective: Objective, measurement: Measurement) -> Trial:
    score = _score(objective, measurement)
    scores = () if score is None or not objective.parts else objective.scores(measurement)
    return Trial(measurement.config, measurement.status, score, scores)


def _score(objective: Objective, measurement: Measurement) -> float | None:
    if measurement.status is not Status.OK:
        return None
    score = objective.score(measurement)
    if not 0 < score < math.inf:
        name = type(objective).__qualname__
        raise ContractError(f"objective {name} gave {measurement.config} the score {score}, not a number above 0")
    return score
