"""Uniform random search: the yardstick of every other sampler."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["RandomSampler"]


class RandomSampler(Sampler):
    """The feasible set in a shuffled order. It ignores the seeds: a yardstick knows nothing."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Shuffle once; the order depends on the search's seed and the size of its set alone."""
        super().__init__(search)
        order = np.random.default_rng(search.seed).permutation(len(search.feasible))
        self._order = iter(order.tolist())

    def ask(self, count: int) -> list[Config]:
        """The next `count` of the shuffled set."""
        return [self.search.feasible[i] for _, i in zip(range(count), self._order, strict=False)]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Nothing to learn."""
