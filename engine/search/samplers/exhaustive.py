"""Every config, in the order of enumeration."""

from __future__ import annotations

from collections.abc import Sequence

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["ExhaustiveSampler"]


class ExhaustiveSampler(Sampler):
    """The feasible set from first to last. Neither the seed nor the seeds matter to it."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Start at the first config."""
        super().__init__(search)
        self._next = 0

    def ask(self, count: int) -> list[Config]:
        """The next `count` of the set."""
        batch = self.search.feasible[self._next : self._next + count]
        self._next += len(batch)
        return list(batch)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn."""
