"""One task of a running campaign: its search, and what became of the batch that was asked last."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.records.task import Task
from gemmtune.engine.scheduling.expectation import expected_gain, regret_bound
from gemmtune.engine.scheduling.tuner import Tuner, check_takes
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.seams.space import Space
from gemmtune.engine.search.enumeration import LazyConfigs
from gemmtune.engine.search.task_features import TaskFeatures

__all__ = ["TaskSearch", "prepare", "prepare_all"]

_Begin = Callable[[tuple[SourceTask, ...]], Tuner]
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
    teacher: Callable[[], tuple[SourceTask, ...]] = tuple
    """Tells what other tasks taught before it began; asked when somebody wants to know."""
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
    def history(self) -> tuple[SourceTask, ...]:
        """What other tasks taught before it began."""
        return self.teacher()

    @property
    def feasible(self) -> int:
        """Configs there are."""
        return self.tuner.feasible

    def teach(self, teacher: Callable[[], tuple[SourceTask, ...]]) -> None:
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
    configs = LazyConfigs(feasible)
    budget = configs.count(budget)

    def begin(history: tuple[SourceTask, ...]) -> Tuner:
        found = configs.all()
        members = set(found)
        search = Search(
            params=space.params(task),
            feasible=found,
            seeds=tuple(config for config in space.seeds(task) if config in members),
            budget=budget,
            seed=own_seed,
            campaign_seed=seed,
            objectives=objectives,
            features=TaskFeatures(space, task),
            history=history,
        )
        return Tuner(sampler(search), budget, batch)

    return TaskSearch(task, sampler, budget, begin)


def prepare_all(task: Task, configs: Sequence[Config], seed: int) -> TaskSearch:
    """One that has nothing to search for: all of these configs in one batch."""
    sampler = registry.sampler("exhaustive")
    return prepare(task, registry.space(task.space), configs, sampler, len(configs), seed, len(configs))


def _nothing_to_search(history: tuple[SourceTask, ...]) -> Tuner:
    search = Search(params=(), feasible=(), seeds=(), budget=0, seed=0, history=history)
    return Tuner(registry.sampler("exhaustive")(search), 0)
