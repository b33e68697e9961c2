"""Steady-state genetic algorithm over the feasible set."""

from collections.abc import Sequence

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding

__all__ = ["EvolutionSampler"]

_FIRST_GENERATION_BOUNDS = (4, 16)
"""Smallest and largest size of the first generation, in configs."""
_POPULATION_BOUNDS = (4, 12)
"""Smallest and largest size of the population, in configs."""


class EvolutionSampler(Sampler):
    """Steady-state genetic algorithm: each result may enter the population at once.

    The search starts with the space's seeds and random configs. Later proposals are neighbours of the best config,
    or children of several parents. A child outside the feasible set, or already proposed, is replaced by the nearest
    config left. Failures never become parents. A population that stops improving is dropped, and a new one starts.

    Sources: Whitley, The GENITOR Algorithm and Selection Pressure (pages 116-121), and Syswerda, Uniform Crossover in
    Genetic Algorithms (pages 2-9), Proceedings of the Third International Conference on Genetic Algorithms, 1989. The
    defaults come from experiments/search/choose.py.

    Args:
        search: task to search.
        initial_share: share of the budget spent on the first generation, seeds included.
        population_share: size of the population, as a share of the budget.
        tournament_size: members drawn per parent, of which the best becomes the parent.
        mean_mutations: mean number of parameters mutated per child.
        random_share: share of proposals drawn at random from the whole feasible set.
        neighbour_share: share of the other proposals that are neighbours of the best config.
        restart_after: results without an improvement after which a new population starts.

    Example:
        >>> import gemmtune as gt
        >>> sampler = EvolutionSampler(gt.testing.example_search(), neighbour_share=0.8)
        >>> len(sampler.ask(4))
        4
    """

    def __init__(
        self,
        search: Search,
        *,
        initial_share: float = 0.2,
        population_share: float = 0.12,
        tournament_size: int = 4,
        mean_mutations: float = 2.0,
        random_share: float = 0.05,
        neighbour_share: float = 0.6,
        restart_after: int = 64,
    ) -> None:
        super().__init__(search)
        self._tournament_size = tournament_size
        self._mean_mutations = mean_mutations
        self._random_share = random_share
        self._neighbour_share = neighbour_share
        self._restart_after = restart_after
        self._encoding = Encoding(search.params, search.feasible)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._initial = [self._encoding.position(config) for config in reversed(self.initial_configs())]
        self._generation_size = _bounded(initial_share * search.budget, _FIRST_GENERATION_BOUNDS)
        self._population_size = _bounded(population_share * search.budget, _POPULATION_BOUNDS)
        self._draws_left = max(0, self._generation_size - len(self._initial))
        self._population: list[tuple[float, int]] = []
        self._since_improvement = 0

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` proposals, each made from the same population."""
        return [self._ask() for _ in range(min(count, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Admit the best trials to the population, or start a new one after too many without an improvement."""
        told = [(t.score, self._encoding.position(t.config)) for t in trials if t.score is not None]
        improved = bool(told) and (not self._population or min(told)[0] < self._population[0][0])
        self._population = sorted(self._population + told)[: self._population_size]
        self._since_improvement = 0 if improved else self._since_improvement + len(trials)
        if self._since_improvement >= self._restart_after:
            self._population, self._since_improvement, self._draws_left = [], 0, self._generation_size

    def exclude(self, config: Config) -> None:
        """Mark `config` as proposed by another sampler, as part of this generation. Its result may still be told."""
        self._free[self._encoding.position(config)] = False
        self._draws_left = max(0, self._draws_left - 1)

    def _ask(self) -> Config:
        if self._initial:
            position = self._initial.pop()
        elif self._draws_left or not self._population or self._rng.random() < self._random_share:
            self._draws_left = max(0, self._draws_left - 1)
            position = int(self._rng.choice(np.flatnonzero(self._free)))
        else:
            position = self._neighbour() if self._rng.random() < self._neighbour_share else self._child()
        self._free[position] = False
        return self.search.feasible[position]

    def _neighbour(self) -> int:
        """Draw a free neighbour of the best config, or return the nearest free config where none is left."""
        best = self._population[0][1]
        around = self._encoding.neighbours(best)
        around = around[self._free[around]]
        if around.size:
            return int(self._rng.choice(around))
        return self._encoding.nearest(self._encoding.points[best], self._free)

    def _child(self) -> int:
        """Take each parameter from a parent of its own, mutate some, and return the nearest free config.

        A mutation moves an ordered axis by one level, and an unordered axis to any other level.
        """
        sizes, points = self._encoding.sizes, self._encoding.points
        child = np.array([points[self._parent(), axis] for axis in range(len(sizes))], np.int16)
        for axis in np.flatnonzero(self._rng.random(len(sizes)) < self._mean_mutations / max(1, len(sizes))):
            if self._encoding.ordered[axis]:
                step = 1 if self._rng.random() < 0.5 else -1
                child[axis] = min(max(child[axis] + step, 0), sizes[axis] - 1)
            else:
                child[axis] = (child[axis] + self._rng.integers(1, sizes[axis])) % sizes[axis]
        return self._encoding.nearest(child, self._free)

    def _parent(self) -> int:
        """Return the best of some members drawn at random; the population is sorted, so it has the lowest rank."""
        rank = int(self._rng.integers(len(self._population), size=self._tournament_size).min())
        return self._population[rank][1]


def _bounded(size: float, bounds: tuple[int, int]) -> int:
    least, most = bounds
    return min(max(round(size), least), most)
