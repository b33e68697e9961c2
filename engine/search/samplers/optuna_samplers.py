"""Optuna's samplers, through its ask and tell.

Optuna knows boxes, not feasible sets. What it proposes off the set, or again, is dropped, and the nearest config that
was not asked takes its place as an enqueued trial: the sampler learns from the point that was measured, not from the
one it had in mind.
"""

from __future__ import annotations

import importlib.util
import math
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar
from warnings import catch_warnings, simplefilter

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.trial import TrialState

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ToolchainMissing
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding
from gemmtune.engine.search.opening import opening

__all__ = ["CmaesSampler", "GpSampler", "Nsga2Sampler", "OptunaSampler", "TpeSampler"]


class OptunaSampler(Sampler):
    """What Optuna's samplers share; a subclass names the one it runs.

    The parameters are the axes of the encoding: an integer where the values are ordered, else a category.
    """

    has_categories: ClassVar[bool] = True
    """Whether the sampler can learn from a category; where not, its levels count as ordered."""
    has_generations: ClassVar[bool] = False
    """Whether the sampler books each trial under a generation, and learns from booked trials alone."""

    def __init__(self, search: Search) -> None:
        """Begin a study in memory."""
        super().__init__(search)
        self._encoding = Encoding(search.params, search.feasible)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._opening = [self._encoding.position(config) for config in reversed(opening(search))]
        self._running: dict[Config, optuna.Trial] = {}
        self._worst: list[float] | None = None
        self._distributions = self._distribute()
        with _quiet():
            # Optuna takes 32 bits.
            self._study = optuna.create_study(
                sampler=self._sampler(search.seed % 2**32), directions=["minimize"] * search.objectives
            )

    @abstractmethod
    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """The sampler of Optuna to run."""

    def ask(self, count: int) -> list[Config]:
        """One trial of the study a config; a batch is asked one by one, each knowing those before it."""
        return [self._ask() for _ in range(min(count, int(self._free.sum())))]

    def tell(self, trials: Sequence[Trial]) -> None:
        """Finish the trials; the study sees logarithms of the scores, so that twice as slow is one step anywhere."""
        for trial in trials:
            running = self._running.pop(trial.config)
            if trial.score is not None:
                values = [math.log(score) for score in trial.scores or (trial.score,)]
                self._worst = list(map(max, values, self._worst or values))
                self._study.tell(running, values)
            elif self._worst is not None:
                # As bad as the worst that worked, in every score. Against ignoring failures, on two recorded landscapes
                # of which a third was made to fail, the best found is the same within the noise (TPE, 32 pairs at 64
                # evaluations; GP, 10 at 40), but fewer evaluations fail: 20 % instead of 31 % with TPE, 20 % instead of
                # 60 % with the GP.
                self._study.tell(running, self._worst)
            else:
                self._study.tell(running, state=TrialState.FAIL)

    def _ask(self) -> Config:
        position, trial = self._propose()
        self._free[position] = False
        config = self.search.feasible[position]
        self._running[config] = trial
        return config

    def _propose(self) -> tuple[int, optuna.Trial]:
        if self._opening:
            position = self._opening.pop()
            return position, self._enqueue(position)
        trial = self._study.ask(self._distributions)
        point = np.array([trial.params[name] for name in self._encoding.names], np.int16)
        proposed = self._encoding.find(point)
        if proposed is not None and self._free[proposed]:
            return proposed, trial
        self._study.tell(trial, state=TrialState.FAIL)
        position = self._encoding.nearest(point, self._free)
        return position, self._enqueue(position)

    def _enqueue(self, position: int) -> optuna.Trial:
        point = self._encoding.points[position].tolist()
        self._study.enqueue_trial(dict(zip(self._encoding.names, point, strict=True)))
        trial = self._study.ask(self._distributions)
        if self.has_generations:
            # A sampler books a trial when it is asked for its relative parameters, and a trial whose parameters are all
            # fixed never asks by itself. Unbooked, CMA-ES and NSGA-II would learn only from proposals that needed no
            # projection.
            _ = trial.relative_params
        return trial

    def _distribute(self) -> dict[str, BaseDistribution]:
        encoding = self._encoding
        return {
            name: IntDistribution(0, size - 1)
            if ordered or not self.has_categories
            else CategoricalDistribution(range(size))
            for name, size, ordered in zip(encoding.names, encoding.sizes, encoding.ordered, strict=True)
        }


class TpeSampler(OptunaSampler):
    """Tree-structured Parzen estimator, multivariate; configs still running count as bad."""

    multi_objective = True

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


class GpSampler(OptunaSampler):
    """Gaussian process with expected improvement, of the front's hypervolume where there are several scores.

    Needs torch and scipy; its asks take a tenth of a second and more.
    """

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Begin a study in memory.

        Raises:
            ToolchainMissing: torch or scipy is not installed.
        """
        missing = [name for name in ("torch", "scipy") if importlib.util.find_spec(name) is None]
        if missing:
            raise ToolchainMissing(f"sampler gp needs {' and '.join(missing)}: pip install 'gemmtune[triton]'")
        super().__init__(search)

    def ask(self, count: int) -> list[Config]:
        """As the others, on one thread of torch: the same asks on every machine, and no threads idling at a barrier.

        Idle, two threads are no faster (24 evaluations on 2 cores: 1.2 s either way). Beside two busy processes they
        took 11 to 19 s where one thread took 2.6 s.
        """
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return super().ask(count)
        finally:
            torch.set_num_threads(threads)

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False)


class CmaesSampler(OptunaSampler):
    """Covariance matrix adaptation. It knows no categories: their levels count as ordered."""

    has_categories = False
    has_generations = True

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


class Nsga2Sampler(OptunaSampler):
    """The genetic algorithm NSGA-II, with a population sized to the budget."""

    multi_objective = True
    has_generations = True

    def _sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=min(50, max(8, self.search.budget // 12)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's greeting and its warnings that an argument is experimental; restores both."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
