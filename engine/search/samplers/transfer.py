"""Bayesian optimisation that starts from the measurements of other tasks."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gemmtune.engine.io.numbers import checked
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding, Mask
from gemmtune.engine.search.models.coordinates import (
    Reals,
    most_central,
    param_coordinates,
    scale_to_unit,
    weigh_coordinates,
)
from gemmtune.engine.search.models.gaussian_process import GaussianProcess
from gemmtune.engine.search.models.joint_process import JointProcess
from gemmtune.engine.search.models.reproducible import argmax, one_thread
from gemmtune.engine.search.models.transfer_model import predict_slowness
from gemmtune.engine.search.samplers.evolution import EvolutionSampler
from gemmtune.engine.search.task_features import feature_matrix


class TransferSampler(Sampler):
    """Expected improvement by a Gaussian process that learns from other tasks.

    The process sees a config as its parameters and the task's features, such as waves and bytes per flop. Its prior
    mean comes from trees fitted to the search's history, or is a constant without a history that applies. In a space
    without config features, `JointProcess` learns from the history instead, for the first `evolution_after`
    proposals; without a history the mean is the space's guess, if it has one. Each proposal comes from the first
    policy whose condition holds:

    | policy | condition |
    |---|---|
    | a seed of the space | all of `Search.first`, else the first `initial_seeds` proposals without a history |
    | the config in the middle of a space without seeds, random ones | the first `initial` without a history or guess |
    | a proposal of `EvolutionSampler` | every second proposal after the first `evolution_after` |
    | expected improvement by `JointProcess` | without config features, with a history |
    | the lowest bound of the prior | no outcome is known yet |
    | expected improvement without the history, among the seeds left | each `skeptical_every`-th with a prediction |
    | a seed's that is at least `promising` of any config's | every second after `more_seeds_after` |
    | expected improvement | otherwise |

    The models name their sources. The defaults were chosen on recorded landscapes, see experiments/search.

    Args:
        search: task to search.
        initial: number of configs evaluated before a search without a prediction uses its model; more with seeds.
        initial_seeds: largest number of seeds among them.
        skeptical_every: interval of proposals that ignore the history, so that an unrelated task still converges.
        more_seeds_after: number of proposals after which every second one may be a seed.
        promising: smallest share of the largest expected improvement without the history that such a seed has.
        evolution_after: number of proposals after which every second one is left to evolution, which explores more.
        small_batch: largest batch while each outcome changes the model much.
        small_batch_until: number of proposals after which batches may be larger than `small_batch`.

    Raises:
        UsageError: a number is out of bounds.

    Example:
        >>> import gemmtune as gt
        >>> sampler = TransferSampler(gt.testing.example_search(), small_batch=2)
        >>> len(sampler.ask(8))
        2
    """

    learns = True

    def __init__(
        self,
        search: Search,
        *,
        initial: int = 3,
        initial_seeds: int = 4,
        skeptical_every: int = 4,
        more_seeds_after: int = 8,
        promising: float = 0.2,
        evolution_after: int = 64,
        small_batch: int = 4,
        small_batch_until: int = 32,
    ) -> None:
        super().__init__(search)
        checked(initial, "initial", int, least=0)
        checked(initial_seeds, "initial_seeds", int, least=0)
        self._skeptical_every = checked(skeptical_every, "skeptical_every", int, least=1)
        self._more_seeds_after = checked(more_seeds_after, "more_seeds_after", int, least=0)
        self._promising = checked(promising, "promising", float, least=0)
        self._evolution_after = checked(evolution_after, "evolution_after", int, least=0)
        self._small_batch = checked(small_batch, "small_batch", int, least=1)
        self._small_batch_until = checked(small_batch_until, "small_batch_until", int, least=0)
        self._encoding = Encoding(search.params, search.feasible)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._asked = 0
        self._trials: list[Trial] = []
        self._evolution: EvolutionSampler | None = None
        with one_thread():
            features = feature_matrix(search.features, search.feasible)
            described = scale_to_unit(features)
            prediction = predict_slowness(search, features) if described.size else None
            self._joint = None if described.size else JointProcess.of(search)
            constant = np.zeros(len(search.feasible))
            means = [constant] if prediction is None else [prediction, constant]
            params = param_coordinates(self._encoding)
            coordinates = weigh_coordinates(params, described)
            is_unknown = bool(search.feasible) and not described.size and self._joint is None
            guess = search.guess(search.feasible) if is_unknown else None
            if guess is not None:
                means, coordinates = [guess.slowness], np.hstack([coordinates, scale_to_unit(guess.shapes)])
            self._process = GaussianProcess(coordinates, means)
        self._has_prediction = prediction is not None
        knows = self._has_prediction or self._joint is not None
        first = list(search.first) or ([] if knows else self.initial_configs()[:initial_seeds])
        self._initial = [self._encoding.position(config) for config in reversed(first)]
        self._draws_left = 0 if knows or guess is not None else max(0, initial - len(first))
        if self._draws_left and not self._initial and len(params):
            self._initial, self._draws_left = [most_central(params)], self._draws_left - 1
        self._seeds = np.isin(np.arange(len(search.feasible)), list(map(self._encoding.position, search.seeds)))

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` proposals, fewer while batches are small; each reduces the variance near it."""
        most = self._small_batch if self._asked < self._small_batch_until else count
        most = max(len(self.search.first) - self._asked, 0) or most
        with one_thread():
            return [self._ask() for _ in range(min(count, most, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Add the logarithms of the scores to the model; a failure counts as the worst of them."""
        with one_thread():
            outcomes = [math.nan if trial.score is None else math.log(trial.score) for trial in trials]
            self._process.tell(outcomes)
            if self._joint is not None:
                self._joint.tell(outcomes)
        self._trials.extend(trials)
        if self._evolution is not None:
            self._evolution.tell(trials)

    def _ask(self) -> Config:
        self._asked += 1
        if self._asked > self._evolution_after:
            self._joint = None  # its rows grow with every config
        position = self._propose()
        config = self.search.feasible[position]
        self._free[position] = False
        self._process.add(position)
        if self._joint is not None:
            self._joint.add(position)
        if self._evolution is not None:
            # Evolution's own proposals too: a population that starts anew then draws fewer configs at random.
            self._evolution.exclude(config)
        return config

    def _propose(self) -> int:
        """Return the position of the next config, by the first policy of the class's table that applies."""
        if self._initial:
            return self._initial.pop()
        if self._draws_left:
            self._draws_left -= 1
            return int(self._rng.choice(np.flatnonzero(self._free)))
        if self._asked > self._evolution_after and self._asked % 2 == 0:
            return self._evolve()
        if self._joint is not None:
            return _argmax(self._joint.improvement(), self._free)
        if not self._process.outcomes:
            return _argmax(-self._process.prior_bound(0), self._free)
        if self._has_prediction and (position := self._propose_without_history()) is not None:
            return position
        return _argmax(self._process.improvement(0), self._free)

    def _propose_without_history(self) -> int | None:
        """Return the seed, or else the config, that promises most without the history; None where it is not due."""
        is_due = self._asked % self._skeptical_every == 0
        if not is_due and (self._asked % 2 or self._asked <= self._more_seeds_after):
            return None
        improvement, seeds = self._process.improvement(1), self._seeds & self._free
        if is_due and not seeds.any():
            return _argmax(improvement, self._free)
        least = 0.0 if is_due else self._promising * improvement[self._free].max()
        seeds &= improvement >= least
        return _argmax(improvement, seeds) if seeds.any() else None

    def _evolve(self) -> int:
        """Return a proposal of evolution, which knows every config proposed and every trial told here."""
        if self._evolution is None:
            self._evolution = EvolutionSampler(replace(self.search, seeds=(), history=(), may_ask=None))
            for position in np.flatnonzero(~self._free):
                self._evolution.exclude(self.search.feasible[position])
            self._evolution.tell(self._trials)
        [config] = self._evolution.ask(1)
        return self._encoding.position(config)


def _argmax(values: Reals, among: Mask) -> int:
    """Return the position of the largest value in `among`."""
    positions = np.flatnonzero(among)
    return int(positions[argmax(values[positions])])
