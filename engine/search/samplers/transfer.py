"""Bayesian search that begins where other tasks ended."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.models.coordinates import Reals, feature_matrix, of_params, unit
from gemmtune.engine.search.models.gaussian_process import Surrogate
from gemmtune.engine.search.models.transfer_model import lesson
from gemmtune.engine.search.opening import opening
from gemmtune.engine.search.samplers.evolution import EvolutionSampler

__all__ = ["TransferSampler"]

# Chosen by experiments/search/choose.py.
_OPENING = 4
"""Configs that a search without history begins with: seeds, and random ones where those are fewer."""
_DOUBT = 4
"""Every so many proposals one leaves the history out of account, and is a seed as long as there are any: where this
task is unlike all others, the search is still one without history, at a quarter of its pace."""
_LONG = 64
"""Proposals after which a search is long: then every second one is evolution's, which is the more thorough of the two.
What the process expects of a valley it has not seen never makes it look there."""
_YOUNG = 32
"""Proposals before which each outcome tells much: a batch is cut short."""
_FEW = 4
"""Configs of a batch that is cut short. What is in flight together was proposed knowing nothing of each other: no lie
about outcomes, no share of bolder or more cautious proposals made up for that (experiments/search)."""
_PARAMS, _KNOWN = 0.35, 1.5
"""Weights of the parameters and of what is known of a config, where something is: configs that mean the same on a task
behave alike, whatever parameters make them so."""
_UNSAID = 0.9
"""Of a parameter's variance, the share beyond what is known from which on it weighs 1: nothing else tells of it."""


@cache
def _threads() -> ThreadpoolController:
    """Threads of the linear algebra: on matrices this small more of them only get in the way of builders."""
    return ThreadpoolController()


class TransferSampler(Sampler):
    """Expected improvement, by a Gaussian process whose mean is what other tasks taught.

    The process sees a config as its parameters and what is known of it on this task (waves, bytes a flop). Without a
    history its mean is a constant, and the search begins with the seeds, and with draws where those are few. With a
    history it comes to the seeds where it doubts that. A long search takes turns with evolution.
    """

    learns = True

    def __init__(self, search: Search) -> None:
        """Learning waits for the first `ask`: of a campaign's many searches only some run at a time."""
        super().__init__(search)
        self._rng = np.random.default_rng(search.seed)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._asked = 0
        self._trials: list[Trial] = []
        self._evolution: EvolutionSampler | None = None

    def ask(self, count: int) -> list[Config]:
        """One proposal a config, few at a time in the beginning; each narrows what is unsure for those after it."""
        with _threads().limit(limits=1):
            if not self._asked:
                self._begin()
            most = _FEW if self._asked < _YOUNG else count
            return [self._ask() for _ in range(min(count, most, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Learn the logarithms of the scores; a failure is as bad as the worst of them."""
        with _threads().limit(limits=1):
            self._surrogate.tell([math.nan if trial.score is None else math.log(trial.score) for trial in trials])
        self._trials.extend(trials)
        if self._evolution is not None:
            self._evolution.tell(trials)

    def _begin(self) -> None:
        search = self.search
        coordinates, means = self._expectation(search)
        self._warm = len(means) > 1
        first = [] if self._warm else opening(search)[:_OPENING]
        self._position = {config: i for i, config in enumerate(search.feasible)}
        self._first = [self._position[config] for config in reversed(first)]
        self._seeds = [self._position[config] for config in search.seeds] if self._warm else []
        self._draws = 0 if self._warm else max(0, _OPENING - len(first))
        self._surrogate = Surrogate(coordinates, means)

    def _expectation(self, search: Search) -> tuple[Reals, list[Reals]]:
        """The coordinates, and the means: what other tasks teach, where that is anything, and a constant."""
        known = feature_matrix(search.features, search.feasible)
        constant = np.zeros(len(search.feasible))
        taught = lesson(search, known)
        means = [constant] if taught is None else [taught, constant]
        return _coordinates(of_params(search.params, search.feasible), unit(known)), means

    def _ask(self) -> Config:
        self._asked += 1
        position = self._next()
        config = self.search.feasible[position]
        self._free[position] = False
        self._surrogate.add(position)
        if self._evolution is not None:
            # Its own, too: a population that begins anew then draws 5 configs and not 16 (experiments/search).
            self._evolution.exclude(config)
        return config

    def _next(self) -> int:
        while self._first:
            position = self._first.pop()
            if self._free[position]:
                return position
        if self._draws:
            self._draws -= 1
            return int(self._rng.choice(np.flatnonzero(self._free)))
        if self._asked > _LONG and self._asked % 2 == 0:
            [config] = self._evolved().ask(1)
            return self._position[config]
        if not self._surrogate.told:
            return self._best(-self._surrogate.bound(0), self._free)
        doubts = self._warm and self._asked % _DOUBT == 0
        if not doubts:
            return self._best(self._surrogate.improvement(0), self._free)
        seeds = np.zeros_like(self._free)
        seeds[self._seeds] = self._free[self._seeds]
        return self._best(self._surrogate.improvement(1), seeds if seeds.any() else self._free)

    def _evolved(self) -> EvolutionSampler:
        """Evolution that knows all that was asked and told here."""
        if self._evolution is None:
            self._evolution = EvolutionSampler(replace(self.search, seeds=(), history=()))
            for position in np.flatnonzero(~self._free):
                self._evolution.exclude(self.search.feasible[position])
            self._evolution.tell(self._trials)
        return self._evolution

    def _best(self, worth: Reals, among: NDArray[np.bool_]) -> int:
        """The config of most worth, the first of equals; last bits, which machines differ in, do not count."""
        positions = np.flatnonzero(among)
        worth = worth[positions]
        span = float(worth.max() - worth.min()) or 1.0
        return int(positions[np.argmax(np.round((worth - worth.min()) / span, 9))])


def _coordinates(params: Reals, known: Reals) -> Reals:
    """Those of the surrogate, configs × coordinates."""
    if not known.size:
        return params
    explanation = np.column_stack([np.ones(len(known)), known])
    rest = params - explanation @ np.linalg.lstsq(explanation, params)[0]
    unsaid = rest.var(axis=0) > _UNSAID * params.var(axis=0)
    return np.hstack([np.where(unsaid, 1.0, _PARAMS) * params, _KNOWN * known])
