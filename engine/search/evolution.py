"""Steady-state evolution that never leaves the feasible set."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding, Point
from gemmtune.engine.search.opening import opening

__all__ = ["EvolutionSampler"]

# Picked after a random search over 70 settings, in batches of 1 and of 16, on five recorded landscapes of foreign
# kernels (CLBlast gemm, convolution and dedispersion in Kernel Tuner's benchmark hub). Three choices show above the
# noise: more than 4 configs in the first generation, at most 8 parents, and a parent for every axis of a child instead
# of two for all. The others do not, and stand for want of a larger study.
_INITIAL = 12
"""Configs of the first generation, seeds included; fewer where the budget is small."""
_POPULATION = 8
"""Best results kept as parents."""
_TOURNAMENT = 3
"""Members drawn for each parent; the best of them is it."""
_MUTATIONS = 2.0
"""Axes mutated in a child, on average."""
_LONG_STEP = 0.25
"""Share of mutations that go two levels instead of one."""
_IMMIGRANTS = 0.05
"""Share of proposals drawn from the whole set."""
_CLIMBERS = 0.2
"""Share of proposals next to the best config."""


class EvolutionSampler(Sampler):
    """Evolution: the seeds and a random draw first, then children of the best and neighbours of the very best.

    A child is projected onto the nearest config not asked yet, so nothing is asked twice or off the set. A failure is
    no parent, and no more: beside a good config is a good place to look, whatever failed there.
    """

    def __init__(self, search: Search) -> None:
        """Draw the first generation: the opening seeds, and random configs for the rest."""
        super().__init__(search)
        self._encoding = Encoding(search.params, search.feasible)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._first = [self._encoding.position(config) for config in reversed(opening(search))]
        self._draws = max(0, min(_INITIAL, search.budget // 2) - len(self._first))
        self._population: list[tuple[float, int]] = []

    def ask(self, count: int) -> list[Config]:
        """One proposal a config; a batch differs by chance, and because no config is asked twice."""
        return [self._ask() for _ in range(min(count, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Let the good ones into the population."""
        told = [(t.score, self._encoding.position(t.config)) for t in trials if t.score is not None]
        self._population = sorted(self._population + told)[:_POPULATION]

    def _ask(self) -> Config:
        if self._first:
            position = self._first.pop()
        elif self._draws or not self._population or self._rng.random() < _IMMIGRANTS:
            self._draws = max(0, self._draws - 1)
            position = int(self._rng.choice(np.flatnonzero(self._free)))
        else:
            position = self._neighbour() if self._rng.random() < _CLIMBERS else self._child()
        self._free[position] = False
        return self.search.feasible[position]

    def _neighbour(self) -> int:
        """A free neighbour of the best config; where all were asked, the nearest free config."""
        best = self._population[0][1]
        around = self._encoding.neighbours(best)
        around = around[self._free[around]]
        if around.size:
            return int(self._rng.choice(around))
        return self._encoding.nearest(self._encoding.points[best], self._free)

    def _child(self) -> int:
        """Each axis from a parent of its own, mutated, and projected onto the nearest free config."""
        child = np.array([self._parent()[axis] for axis in range(len(self._encoding.sizes))], np.int16)
        self._mutate(child)
        return self._encoding.nearest(child, self._free)

    def _parent(self) -> Point:
        # The population is sorted, so the best of those drawn is the lowest rank.
        rank = int(self._rng.integers(len(self._population), size=_TOURNAMENT).min())
        parent: Point = self._encoding.points[self._population[rank][1]]
        return parent

    def _mutate(self, child: Point) -> None:
        sizes = self._encoding.sizes
        for axis in np.flatnonzero(self._rng.random(len(sizes)) < _MUTATIONS / max(1, len(sizes))):
            if self._encoding.ordered[axis]:
                step = (2 if self._rng.random() < _LONG_STEP else 1) * (1 if self._rng.random() < 0.5 else -1)
                child[axis] = min(max(child[axis] + step, 0), sizes[axis] - 1)
            else:
                child[axis] = (child[axis] + self._rng.integers(1, sizes[axis])) % sizes[axis]
