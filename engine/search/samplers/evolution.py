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

# Chosen by experiments/search/choose.py.
_INITIAL = 0.2
"""Share of the budget that the first generation takes, seeds included."""
_INITIAL_BOUNDS = (4, 16)
"""Configs of the first generation, at least and at most."""
_POPULATION = 0.12
"""Best results kept as parents, as a share of the budget."""
_POPULATION_BOUNDS = (4, 12)
"""Parents, at least and at most."""
_TOURNAMENT = 4
"""Members drawn for each parent; the best of them is it."""
_MUTATIONS = 2.0
"""Axes mutated in a child, on average."""
_IMMIGRANTS = 0.05
"""Share of proposals drawn from the whole set."""
_CLIMBERS = 0.6
"""Share of proposals next to the best config."""
_PATIENCE = 64
"""Results without a better one after which the population starts anew."""


class EvolutionSampler(Sampler):
    """Evolution: the seeds and a random draw first, then children of the best and neighbours of the very best.

    A child is projected onto the nearest config not asked yet, so nothing is asked twice or off the set. A failure is
    no parent, and no more: beside a good config is a good place to look, whatever failed there. A population that finds
    nothing better for long has come to the end of its valley; another begins somewhere else.
    """

    def __init__(self, search: Search) -> None:
        """Draw the first generation: the opening seeds, and random configs for the rest."""
        super().__init__(search)
        self._encoding = Encoding(search.params, search.feasible)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._first = [self._encoding.position(config) for config in reversed(opening(search))]
        self._generation = _share(_INITIAL, search.budget, _INITIAL_BOUNDS)
        self._size = _share(_POPULATION, search.budget, _POPULATION_BOUNDS)
        self._draws = max(0, self._generation - len(self._first))
        self._population: list[tuple[float, int]] = []
        self._idle = 0

    def ask(self, count: int) -> list[Config]:
        """One proposal a config; a batch differs by chance, and because no config is asked twice."""
        return [self._ask() for _ in range(min(count, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Let the good ones into the population, or begin another."""
        told = [(t.score, self._encoding.position(t.config)) for t in trials if t.score is not None]
        improved = bool(told) and (not self._population or min(told)[0] < self._population[0][0])
        self._population = sorted(self._population + told)[: self._size]
        self._idle = 0 if improved else self._idle + len(trials)
        if self._idle >= _PATIENCE:
            self._population, self._idle, self._draws = [], 0, self._generation

    def exclude(self, config: Config) -> None:
        """Somebody else asks for it, whose outcome may be told here; it counts as one of the first generation."""
        self._free[self._encoding.position(config)] = False
        self._draws = max(0, self._draws - 1)

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
                step = 1 if self._rng.random() < 0.5 else -1
                child[axis] = min(max(child[axis] + step, 0), sizes[axis] - 1)
            else:
                child[axis] = (child[axis] + self._rng.integers(1, sizes[axis])) % sizes[axis]


def _share(share: float, budget: int, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return min(max(round(share * budget), least), most)
