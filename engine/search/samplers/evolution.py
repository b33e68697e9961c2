"""Steady-state genetic algorithm over the feasible set."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gemmtune.engine.io.numbers import checked
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding, Positions
from gemmtune.engine.search.models.coordinates import most_central, param_coordinates
from gemmtune.engine.search.models.reproducible import argmax, one_thread
from gemmtune.engine.search.models.surrogate import Surrogate


class EvolutionSampler(Sampler):
    """Steady-state genetic algorithm that breeds many children per proposal, and proposes the most promising one.

    The search starts with the space's seeds, the config nearest to the middle of the space, and random configs. Each
    later proposal comes from a brood: children of several parents, and neighbours of the best config. A Gaussian
    process of the results so far expects an improvement of each; the largest one wins. The space may be of any size,
    since only the brood is predicted, and children of a space that is not enumerated are checked as they are bred.

    Failures never become parents. A population that stops improving is dropped with all that its model knows, and a
    new one starts from random configs.

    Sources: Whitley, The GENITOR Algorithm and Selection Pressure (pages 116-121), and Syswerda, Uniform Crossover in
    Genetic Algorithms (pages 2-9), Proceedings of the Third International Conference on Genetic Algorithms, 1989;
    for the choice among children, Jin, Surrogate-Assisted Evolutionary Computation, Swarm and Evolutionary Computation
    1, 2011. experiments/search says what each part gains.

    Args:
        search: task to search.
        children: children bred per proposal.
        initial: configs proposed before the model chooses, seeds included; more where the space has more seeds.
        generation: random configs that start a new population.
        population: size of the population, in configs.
        tournament_size: members drawn per parent, of which the best becomes the parent.
        mean_mutations: mean number of parameters mutated per child.
        restart_after: results without an improvement after which a new population starts.

    Raises:
        UsageError: a number is out of bounds.

    Example:
        >>> import gemmtune as gt
        >>> sampler = EvolutionSampler(gt.testing.example_search(), children=16)
        >>> len(sampler.ask(4))
        4
    """

    def __init__(
        self,
        search: Search,
        *,
        children: int = 256,
        initial: int = 4,
        generation: int = 16,
        population: int = 12,
        tournament_size: int = 4,
        mean_mutations: float = 2.0,
        restart_after: int = 64,
    ) -> None:
        super().__init__(search)
        self._children = checked(children, "children", int, least=1)
        self._tournament_size = checked(tournament_size, "tournament_size", int, least=1)
        self._mean_mutations = checked(mean_mutations, "mean_mutations", float, least=0)
        self._restart_after = checked(restart_after, "restart_after", int, least=1)
        self._encoding = Encoding(search.params, search.feasible, search.may_ask)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._initial = [self._encoding.position(config) for config in reversed(self.initial_configs())]
        self._generation_size = checked(generation, "generation", int, least=1)
        self._population_size = checked(population, "population", int, least=1)
        self._draws_left = max(0, checked(initial, "initial", int, least=0) - len(self._initial))
        self._population: list[tuple[float, int]] = []
        self._since_improvement = 0
        self._pending: list[int] = []
        self._coordinates = param_coordinates(self._encoding)
        self._model = Surrogate(self._coordinates)
        if not self._initial and self._draws_left and len(self._coordinates):
            self._initial.append(most_central(self._coordinates))
            self._draws_left -= 1

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` proposals, each made from the same population."""
        with one_thread():
            return [self._ask() for _ in range(min(count, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Admit the best trials to the population, or start a new one after too many without an improvement."""
        self._pending = []
        positions = [self._encoding.position(trial.config) for trial in trials]
        with one_thread():
            self._model.tell(positions, [math.nan if t.score is None else math.log(t.score) for t in trials])
        told = [(t.score, self._encoding.position(t.config)) for t in trials if t.score is not None]
        improved = bool(told) and (not self._population or min(told)[0] < self._population[0][0])
        self._population = sorted(self._population + told)[: self._population_size]
        self._since_improvement = 0 if improved else self._since_improvement + len(trials)
        if self._since_improvement >= self._restart_after:
            self._population, self._since_improvement, self._draws_left = [], 0, self._generation_size
            self._model = Surrogate(self._coordinates)

    def exclude(self, config: Config) -> None:
        """Mark `config` as proposed by another sampler, as part of this generation. Its result may still be told."""
        position = self._encoding.position(config)
        self._free[position] = False
        self._initial = [waiting for waiting in self._initial if waiting != position]
        self._draws_left = max(0, self._draws_left - 1)

    def _ask(self) -> Config:
        if self._initial:
            position = self._initial.pop()
        elif self._draws_left or not self._population:
            self._draws_left = max(0, self._draws_left - 1)
            position = self._draw()
        elif (brood := self._brood()).size:
            position = int(brood[argmax(self._model.improvement(brood, self._pending))])
        else:
            position = self._draw()
        self._free[position] = False
        self._pending.append(position)
        return self._encoding.configs[position]

    def _draw(self) -> int:
        """Draw a config at random from those left."""
        return int(self._rng.choice(np.flatnonzero(self._free)))

    def _brood(self) -> Positions:
        """Return the ascending positions of free children and free neighbours of the best config; may be empty."""
        around = self._encoding.neighbours(self._population[0][1])
        bred = self._encoding.find_all(self._bred(self._children))
        if added := len(self._encoding.configs) - len(self._free):
            self._free = np.append(self._free, np.ones(added, np.bool_))
            self._coordinates = param_coordinates(self._encoding)
            self._model.coordinates = self._coordinates
        brood = np.unique(np.array([*around, *(position for position in bred if position is not None)], np.intp))
        return brood[self._free[brood]]

    def _bred(self, count: int) -> NDArray[np.int16]:
        """Take each parameter from a parent of its own, and mutate some; return the levels, shape (count, axes).

        A mutation moves an ordered axis by one level, and an unordered axis to any other level.
        """
        sizes = np.array(self._encoding.sizes, np.intp)
        shape = (count, len(sizes))
        ranks = self._rng.integers(len(self._population), size=(*shape, self._tournament_size)).min(axis=2)
        parents = np.array([position for _, position in self._population])[ranks]
        child = self._encoding.points[parents, np.arange(len(sizes))].astype(np.intp)
        step = np.where(self._rng.random(shape) < 0.5, 1, -1)
        moved = np.clip(child + step, 0, sizes - 1)
        other = (child + self._rng.integers(1, np.maximum(sizes, 2), size=shape)) % sizes
        mutated = np.where(self._encoding.ordered, moved, other)
        mutates = self._rng.random(shape) < self._mean_mutations / max(1, len(sizes))
        levels: NDArray[np.int16] = np.where(mutates, mutated, child).astype(np.int16)
        return levels
