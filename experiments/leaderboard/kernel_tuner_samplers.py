"""Kernel Tuner's strategies behind ask and tell, with their defaults; the module needs kernel_tuner 1.5.0."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from functools import lru_cache
from queue import SimpleQueue
from threading import Thread
from types import SimpleNamespace

import numpy as np
from kernel_tuner.interface import Options, strategy_map
from kernel_tuner.searchspace import Searchspace
from kernel_tuner.util import RuntimeFailedConfig, TuningBudget

import gemmtune as gt
from gemmtune.engine.records.config import Config, Param


class KernelTunerSampler(gt.Sampler):
    """Strategy of Kernel Tuner in a thread of its own, which waits while its configs are evaluated.

    A config that it asks for again costs nothing. A strategy that ends before its budget begins again.
    """

    strategy: str

    def __init__(self, search: gt.Search) -> None:
        super().__init__(search)
        self._asked: SimpleQueue[Config | BaseException] = SimpleQueue()
        self._told: SimpleQueue[gt.Trial] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def ask(self, count: int) -> list[Config]:
        """Return the strategy's next config.

        Raises:
            BaseException: the strategy raised it.
        """
        found = self._asked.get()
        if isinstance(found, BaseException):
            raise found
        return [found]

    def tell(self, trials: Sequence[gt.Trial]) -> None:
        """Answer the strategy; after the last trial of the budget it ends."""
        for trial in trials:
            self._told.put(trial)

    def _run(self) -> None:
        random.seed(self.search.seed)
        np.random.seed(self.search.seed)  # Kernel Tuner draws from both
        space = _space(self.search.params, self.search.feasible)
        budget = TuningBudget(None, min(self.search.budget, space.size))
        options = Options(
            objective=["time"],
            objective_higher_is_better=[False],
            strategy_options=Options(max_fevals=budget.max_fevals),
            tune_params=space.tune_params,
            verbose=False,
            budget=budget,
        )
        options["max_fevals"] = budget.max_fevals
        try:
            runner = _Runner(self.search, self._asked, self._told)
            while not budget.is_done():
                strategy_map[self.strategy].tune(space, runner, options)
        except BaseException as error:
            self._asked.put(error)


class _Runner:
    def __init__(
        self, search: gt.Search, asked: SimpleQueue[Config | BaseException], told: SimpleQueue[gt.Trial]
    ) -> None:
        self.dev = SimpleNamespace(max_threads=1024)  # bayes_opt looks
        self._names = [param.name for param in search.params]
        self._asked, self._told = asked, told
        self._known: dict[tuple[object, ...], dict[str, object]] = {}
        self._configs = {tuple(config[name] for name in self._names): config for config in search.feasible}

    def add_strategy_time(self, seconds: float) -> None:
        """Ignore the time that the strategy took."""

    def run(self, parameter_space: Iterable[Sequence[object]], tuning_options: Options) -> list[object]:
        """Return the result of each config, None for those beyond the budget."""
        return [
            None if tuning_options.budget.is_done() else self._result(tuple(x), tuning_options.budget)
            for x in parameter_space
        ]

    def _result(self, values: tuple[object, ...], budget: TuningBudget) -> dict[str, object]:
        if values not in self._known:
            self._asked.put(self._configs[values])
            score = self._told.get().score
            self._known[values] = {**dict(zip(self._names, values, strict=True)), "time": (score or 0.0) / 1e6}
            if score is None:
                self._known[values]["__error__"] = RuntimeFailedConfig()
            budget.add_evaluations(1)
        return dict(self._known[values])


@lru_cache(1)
def _space(params: tuple[Param, ...], feasible: tuple[Config, ...]) -> Searchspace:
    names = [param.name for param in params]
    listed = {"tune_params": {param.name: list(param.values) for param in params}}
    listed["cache"] = {config.json: {name: config[name] for name in names} for config in feasible}
    return Searchspace(None, None, None, from_cache=listed)


def strategy(name: str) -> type[KernelTunerSampler]:
    """Return the sampler of a strategy, named kt_ and the strategy's name."""
    return type(f"kt_{name}", (KernelTunerSampler,), {"strategy": name})
