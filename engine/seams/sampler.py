"""A sampler: which config to evaluate next."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search

__all__ = ["Sampler"]


class Sampler(ABC):
    """One search of one task, by ask and tell.

    The caller tells each asked batch in the order it was asked before it asks again. Then the sequence of asked
    configs is a function of the Search and of what was told: a search resumes by asking again and telling from the
    database.

    Example:
        >>> import gemmtune as gt
        >>> class InOrder(gt.Sampler):
        ...     def __init__(self, search):
        ...         super().__init__(search)
        ...         self.left = list(search.feasible)
        ...     def ask(self, count):
        ...         batch, self.left = self.left[:count], self.left[count:]
        ...         return batch
        ...     def tell(self, trials):
        ...         pass
        >>> gt.testing.check_sampler(InOrder)
    """

    multi_objective: ClassVar[bool] = False
    """Whether it searches for the Pareto front where `Search.objectives` is above 1; it is given no such search
    otherwise. The trials of one that is ok then have as many `scores`, each to minimise."""

    learns: ClassVar[bool] = False
    """Whether `Search.history` matters to it; it is given none otherwise."""

    notice: str = ""
    """One line about how this search is done, where a person should know; else empty."""

    def __init__(self, search: Search) -> None:
        """Begin a search. `search` is the only source of randomness and of configs."""
        self.search = search

    @abstractmethod
    def ask(self, count: int) -> list[Config]:
        """At most `count` configs to evaluate next, out of `search.feasible`, none asked before.

        Empty only when nothing is left to ask.
        """

    @abstractmethod
    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn the outcome of the last asked batch, failures included, in the order of asking."""
