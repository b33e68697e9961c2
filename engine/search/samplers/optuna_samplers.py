"""Optuna's samplers behind ask and tell.

Optuna samples boxes, not feasible sets. Where it proposes an infeasible or repeated point, that trial is discarded, and
the nearest config left is enqueued instead. So the sampler learns from the point that was measured.
"""

import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.records.search import Search
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.search.encoding import Encoding
from gemmtune.engine.search.quiet_optuna import optuna, quiet_optuna
from gemmtune.engine.toolchain.installed import require_extra


class OptunaSampler(Sampler):
    """Base class of Optuna's samplers; a subclass creates the one it runs, with Optuna's defaults.

    Each axis of the encoding is a parameter: an integer where its values are ordered, else a category.
    """

    has_categories: ClassVar[bool] = True
    """Whether the sampler handles categories; otherwise their levels count as ordered."""
    has_generations: ClassVar[bool] = False
    """Whether the sampler assigns trials to generations, and learns only from trials that have one."""

    def __init__(self, search: Search) -> None:
        super().__init__(search)
        self._encoding = Encoding(search.params, search.feasible, search.may_ask)
        self._free = np.ones(len(search.feasible), np.bool_)
        self._initial = [self._encoding.position(config) for config in reversed(self.initial_configs())]
        self._running: dict[Config, optuna.Trial] = {}
        self._worst: list[float] | None = None
        self._distributions: dict[str, optuna.distributions.BaseDistribution] = {
            name: optuna.distributions.IntDistribution(0, size - 1)
            if ordered or not self.has_categories
            else optuna.distributions.CategoricalDistribution(range(size))
            for name, size, ordered in zip(
                self._encoding.names, self._encoding.sizes, self._encoding.ordered, strict=True
            )
        }
        with quiet_optuna():
            self._study = optuna.create_study(
                sampler=self._optuna_sampler(search.seed % 2**32), directions=["minimize"] * search.objectives
            )

    @abstractmethod
    def _optuna_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        """Create the sampler of Optuna to run; `seed` has 32 bits."""

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` proposals, each made with the earlier ones of the batch as running trials."""
        proposals = []
        for _ in range(min(count, int(self._free.sum()))):
            position, trial = self._propose()
            self._free[position] = False
            proposals.append(self._encoding.configs[position])
            self._running[proposals[-1]] = trial
        return proposals

    def tell(self, trials: Sequence[Trial]) -> None:
        """Finish the trials with the logarithms of their scores; a failure counts as the worst of each score so far."""
        for trial in trials:
            running = self._running.pop(trial.config)
            if trial.score is not None:
                values = [math.log(score) for score in trial.scores or (trial.score,)]
                self._worst = list(map(max, values, self._worst or values))
                self._study.tell(running, values)
            elif self._worst is not None:
                self._study.tell(running, self._worst)
            else:
                self._study.tell(running, state=optuna.trial.TrialState.FAIL)

    def _propose(self) -> tuple[int, optuna.Trial]:
        if self._initial:
            position = self._initial.pop()
            return position, self._enqueue(position)
        trial = self._study.ask(self._distributions)
        point = np.array([trial.params[name] for name in self._encoding.names], np.int16)
        proposed = self._encoding.find(point)
        if proposed == len(self._free):  # a config that was not drawn for the search
            self._free = np.append(self._free, True)
        if proposed is not None and self._free[proposed]:
            return proposed, trial
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)
        position = self._encoding.nearest(point, self._free)
        return position, self._enqueue(position)

    def _enqueue(self, position: int) -> optuna.Trial:
        point = self._encoding.points[position].tolist()
        self._study.enqueue_trial(dict(zip(self._encoding.names, point, strict=True)))
        trial = self._study.ask(self._distributions)
        if self.has_generations:
            _ = trial.relative_params  # assigns the generation, which a trial of fixed parameters would not get
        return trial


class TpeSampler(OptunaSampler):
    """Multivariate tree-structured Parzen estimator; configs still running count as bad.

    Sources: Algorithms for Hyper-Parameter Optimization (papers.nips.cc/paper/4443); Multiobjective Tree-Structured
    Parzen Estimator (doi 10.1613/jair.1.13188).
    """

    multi_objective = True

    def _optuna_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)


class GpSampler(OptunaSampler):
    """Gaussian process with expected improvement, of the front's hypervolume for several objectives; needs torch."""

    multi_objective = True

    def __init__(self, search: Search) -> None:
        """Create a study in memory; raises ToolchainMissing if torch is not installed."""
        require_extra("triton", "sampler gp", "torch")
        super().__init__(search)

    def ask(self, count: int) -> list[Config]:
        """Return up to `count` proposals, computed on one thread of torch: equal proposals on every machine."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return super().ask(count)
        finally:
            torch.set_num_threads(threads)

    def _optuna_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.GPSampler(seed=seed, warn_independent_sampling=False)


class CmaesSampler(OptunaSampler):
    """Covariance matrix adaptation evolution strategy; the levels of a category count as ordered.

    Source: The CMA Evolution Strategy: A Tutorial (arxiv.org/abs/1604.00772).
    """

    has_categories = False
    has_generations = True

    def _optuna_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)


class Nsga2Sampler(OptunaSampler):
    """Genetic algorithm NSGA-II with a population sized to the budget.

    Source: A fast and elitist multiobjective genetic algorithm: NSGA-II (doi 10.1109/4235.996017).
    """

    multi_objective = True
    has_generations = True

    def _optuna_sampler(self, seed: int) -> optuna.samplers.BaseSampler:
        return optuna.samplers.NSGAIISampler(seed=seed, population_size=min(50, max(8, self.search.budget // 12)))
