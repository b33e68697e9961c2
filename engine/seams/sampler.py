"""Contract of a sampler, which decides which configs to evaluate next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search

__all__ = ["Sampler"]


class Sampler(ABC):
    """Search of one task, by ask and tell.

    The caller tells each asked batch, in the order of asking, before it asks again. The sequence of asked configs must
    be a function of the Search and of the trials told. So a killed search resumes when the caller asks again and tells
    the recorded trials.

    Example:
        Descend from the best config seen so far, one parameter at a time:

        >>> import random
        >>> import gemmtune as gt
        >>> class Descent(gt.Sampler):
        ...     def __init__(self, search):
        ...         super().__init__(search)
        ...         rest = random.Random(search.seed).sample(search.feasible, len(search.feasible))
        ...         self._queue = list(dict.fromkeys([*self.initial_configs(), *rest]))
        ...         self._best = None
        ...
        ...     def ask(self, count):
        ...         batch, self._queue = self._queue[:count], self._queue[count:]
        ...         return batch
        ...
        ...     def tell(self, trials):
        ...         ok = [t for t in (self._best, *trials) if t is not None and t.score is not None]
        ...         self._best = min(ok, key=lambda trial: trial.score, default=None)
        ...         if self._best is not None:  # the configs that differ least from the best come next
        ...             self._queue.sort(key=lambda config: len(config.items() - self._best.config.items()))
        >>> gt.testing.check_sampler(Descent)
    """

    multi_objective: ClassVar[bool] = False
    """Whether the sampler searches for a Pareto front. Only such a sampler receives a Search with `objectives` above 1,
    whose successful trials have that many `scores`, each to minimise."""

    learns: ClassVar[bool] = False
    """Whether the sampler uses `Search.history`, which is empty for every other sampler."""

    notice: str = ""
    """One line for the user on how this search is done; empty without one."""

    def __init__(self, search: Search) -> None:
        """Start a search; `search` is the only source of randomness and of configs."""
        self.search = search

    def initial_configs(self) -> list[Config]:
        """Return the space's seeds to evaluate first, best guess first: at most a quarter of the budget, at least one.

        The limit leaves budget for the search where the list of seeds is long: Inductor's has 20 configs.
        """
        return list(dict.fromkeys(self.search.seeds))[: max(1, self.search.budget // 4)]

    @abstractmethod
    def ask(self, count: int) -> list[Config]:
        """Return at most `count` configs of `search.feasible` that were not asked before.

        Return an empty list only when every config has been asked.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from the trials of the last asked batch, failures included, in the order of asking."""
