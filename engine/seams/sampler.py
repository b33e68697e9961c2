"""Contract of a sampler, which decides which configs to evaluate next."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search


class Sampler(ABC):
    """Search of one task, by ask and tell; `search` is the only source of randomness and of configs.

    The caller tells each asked batch, in the order of asking, before it asks again. The sequence of asked configs must
    be a function of the Search and of the trials told: a killed search resumes from its recorded trials.

    Example:
        >>> import gemmtune as gt
        >>> class Descent(gt.Sampler):
        ...     def __init__(self, search):
        ...         super().__init__(search)
        ...         self._queue = list(dict.fromkeys([*self.initial_configs(), *search.feasible]))
        ...
        ...     def ask(self, count):
        ...         batch, self._queue = self._queue[:count], self._queue[count:]
        ...         return batch
        ...
        ...     def tell(self, trials):  # the configs that differ least from the batch's best come next
        ...         ok = [trial for trial in trials if trial.score is not None]
        ...         if ok:
        ...             best = min(ok, key=lambda trial: trial.score).config
        ...             self._queue.sort(key=lambda config: len(config.items() - best.items()))
        >>> gt.testing.check_sampler(Descent)
    """

    multi_objective: ClassVar[bool] = False
    """Whether the sampler searches for a Pareto front; only then a Search may have `objectives` above 1."""

    learns: ClassVar[bool] = False
    """Whether the sampler uses `Search.history`, which is empty for every other sampler."""

    notice: str = ""
    """One line for the user on how this search is done; empty without one."""

    def __init__(self, search: Search) -> None:
        self.search = search

    def initial_configs(self) -> list[Config]:
        """Return `Search.first`, else the first seeds: at most a quarter of the budget, at least one."""
        return list(self.search.first) or list(dict.fromkeys(self.search.seeds))[: max(1, self.search.budget // 4)]

    @abstractmethod
    def ask(self, count: int) -> list[Config]:
        """Return at most `count` configs of `search.feasible` that were not asked before.

        Return an empty list only when every config has been asked.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn from the trials of the last asked batch, failures included, in the order of asking."""
