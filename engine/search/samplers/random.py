"""Uniform random search, the reference for every other sampler."""

import numpy as np

from gemmtune.engine.records.search import Search
from gemmtune.engine.search.samplers.exhaustive import ExhaustiveSampler


class RandomSampler(ExhaustiveSampler):
    """Sampler that proposes the feasible set in random order, and ignores the space's seeds.

    The order depends only on the search's seed and the size of the set.
    """

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        order = np.random.default_rng(search.seed).permutation(len(search.feasible))
        self._left = [search.feasible[i] for i in reversed(order.tolist())]
