"""Many tasks, one fleet: keeps it fed, keeps the database, tells a watcher."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from gemmtune.engine.campaign.fleet import Fleet
from gemmtune.engine.campaign.tuner import Tuner
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError
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
    )
    return TaskSearch(task, Tuner(sampler(search), budget, batch), budget)


def run(
    searches: Sequence[TaskSearch], fleet: Fleet, database: Database, objective: Objective, watcher: Watcher
) -> None:
    """Run every search to its end.

    Each measurement is in the database before its sampler hears of it, and what the database holds is not measured
    again: a campaign that was killed goes on where it was.

    Raises:
        ContractError: the fleet returned what was not submitted, or returned it again; a sampler or the objective
            broke its contract.
        StoreError: the database refused.
    """
    watcher.began(searches)
    for search in searches:
        toolchain, protocol = fleet.toolchain(search.task), fleet.protocol(search.task)
        search.known = database.known(search.task, protocol, fleet.evidence, toolchain)
    waiting = list(reversed(searches))
    active: dict[Task, TaskSearch] = {}
    while waiting or active:
        while waiting and len(active) < _TASKS_AT_ONCE:
            search = waiting.pop()
            if _advance(search, fleet, objective, watcher):
                active[search.task] = search
        if not active:
            continue
        finished = fleet.collect(_WAIT_SECONDS)
        if not finished:
            watcher.waited()
            continue
        database.add(finished)
        for measurement in finished:
            _accept(measurement, active.get(measurement.task), fleet)
            watcher.measured(measurement, _score(objective, measurement), known=False)
        for task in dict.fromkeys(measurement.task for measurement in finished):
            if not _advance(active[task], fleet, objective, watcher):
                del active[task]


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
    return Trial(measurement.config, measurement.status, _score(objective, measurement))


def _score(objective: Objective, measurement: Measurement) -> float | None:
    if measurement.status is not Status.OK:
        return None
    score = objective.score(measurement)
    if not 0 < score < math.inf:
        name = type(objective).__qualname__
        raise ContractError(f"objective {name} gave {measurement.config} the score {score}, not a number above 0")
    return score
