"""Uniform random search, the reference for every other sampler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["RandomSampler"]


class RandomSampler(Sampler):
    """Sampler that proposes the feasible set in random order, and ignores the space's seeds."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Shuffle the feasible set once; the order depends only on the search's seed and the size of the set."""
        super().__init__(search)
        order = np.random.default_rng(search.seed).permutation(len(search.feasible))
        self._order = iter(order.tolist())

    def ask(self, count: int) -> list[Config]:
        """Return the next `count` configs of the shuffled set."""
        return [self.search.feasible[i] for _, i in zip(range(count), self._order, strict=False)]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Ignore the trials and their outcomes."""
