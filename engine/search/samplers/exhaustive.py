"""Every config in the order of enumeration."""

from __future__ import annotations

from collections.abc import Sequence

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["ExhaustiveSampler"]


class ExhaustiveSampler(Sampler):
    """Sampler that proposes the feasible set from first to last, whatever its seed and the space's seeds."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Start at the first config."""
        super().__init__(search)
        self._next = 0

    def ask(self, count: int) -> list[Config]:
        """Return the next `count` configs of the feasible set."""
        batch = self.search.feasible[self._next : self._next + count]
        self._next += len(batch)
        return list(batch)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Ignore the trials and their outcomes."""
