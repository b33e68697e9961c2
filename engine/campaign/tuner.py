"""One task's search, as a state machine: batches out, trials in, no I/O."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.errors import ContractError, UsageError
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Past
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler

__all__ = ["Tuner"]


class Tuner:
    """Runs a sampler within a budget, and holds it to its contract.

    `next_batch` and `tell` alternate until `done`. Driven by the same trials, it gives the same batches: a killed
    search resumes by telling what the database knows.
    """

    def __init__(self, sampler: Sampler, budget: int, batch: int = 1) -> None:
        """Begin.

        Args:
            sampler: a fresh sampler; the tuner owns it from here on.
            budget: evaluations to spend, failures included; at least 0.
            batch: most configs to ask for at once; at least 1.

        Raises:
            ValueError: the budget or the batch is below its bound.
            UsageError: the search has several objectives, and the sampler takes one; the message names those that
                take several.
        """
        if budget < 0 or batch < 1:
            raise ValueError(f"budget={budget} is below 0 or batch={batch} below 1")
        _check_takes(sampler)
        self._sampler = sampler
        self._budget = budget
        self._batch = batch
        self._unasked = set(sampler.search.feasible)
        self._pending: list[Config] = []
        self._trials: list[Trial] = []
        self._best: Trial | None = None
        self._best_score = math.inf

    @property
    def learns(self) -> bool:
        """Whether other tasks can teach its sampler."""
        return self._sampler.learns

    @property
    def notice(self) -> str:
        """What its sampler has to say of how it searches; empty where that is nothing."""
        return self._sampler.notice

    def taught(self, history: Sequence[Past]) -> Tuner:
        """The same search from its start, its sampler taught by other tasks."""
        search = replace(self._sampler.search, history=tuple(history))
        return Tuner(type(self._sampler)(search), self._budget, self._batch)

    @property
    def trials(self) -> tuple[Trial, ...]:
        """Everything told so far, in order."""
        return tuple(self._trials)

    @property
    def best(self) -> Trial | None:
        """The trial of the lowest score, the earliest of equals; None before the first success."""
        return self._best

    @property
    def done(self) -> bool:
        """Whether the budget or the feasible set is used up and all is told."""
        return not self._pending and (len(self._trials) >= self._budget or not self._unasked)

    def next_batch(self) -> list[Config]:
        """The configs to evaluate next; empty only when `done`.

        Raises:
            RuntimeError: the last batch has not been told.
            ContractError: the sampler asked for more than it may, a config twice, one outside the feasible set, or
                nothing while something was left.
        """
        if self._pending:
            raise RuntimeError(f"{len(self._pending)} configs of the last batch have not been told")
        if self.done:
            return []
        count = min(self._batch, self._budget - len(self._trials))
        asked = self._sampler.ask(count)
        if len(asked) > count:
            raise self._broken(f"asked for {len(asked)} configs where {count} were wanted")
        if not asked:
            raise self._broken(f"asked for nothing while {len(self._unasked)} feasible configs were left")
        for config in asked:
            if config not in self._unasked:
                again = config in self._sampler.search.feasible
                raise self._broken(
                    f"asked for {config} again" if again else f"asked for {config}, which is not feasible"
                )
            self._unasked.remove(config)
        self._pending = list(asked)
        return list(asked)

    def tell(self, trials: Sequence[Trial]) -> None:
        """The outcome of the last batch, in the order it was asked.

        Raises:
            ValueError: the configs are not those of the last batch in its order, or an outcome has a score where it
                should not, none where it should, or not as many as the search has objectives.
        """
        told = [trial.config for trial in trials]
        if told != self._pending:
            raise ValueError(f"told {told} where {self._pending} was asked; tell the whole batch in its order")
        for trial in trials:
            if (trial.score is None) is (trial.status is Status.OK):
                raise ValueError(
                    f"{trial.config}: score {trial.score} with status {trial.status}; ok alone has a score"
                )
            objectives = self._sampler.search.objectives
            due = objectives if objectives > 1 and trial.score is not None else 0
            if len(trial.scores) != due:
                raise ValueError(f"{trial.config}: {len(trial.scores)} scores where {due} are due, one an objective")
        self._pending = []
        self._trials.extend(trials)
        for trial in trials:
            if trial.score is not None and trial.score < self._best_score:
                self._best, self._best_score = trial, trial.score
        self._sampler.tell(trials)

    def _broken(self, what: str) -> ContractError:
        return ContractError(f"sampler {type(self._sampler).__qualname__} {what}")


def _check_takes(sampler: Sampler) -> None:
    objectives = sampler.search.objectives
    if objectives == 1 or sampler.multi_objective:
        return
    registered = {registry.sampler(name): name for name in registry.names(Sampler)}
    several = ", ".join(name for kind, name in registered.items() if kind.multi_objective)
    name = registered.get(type(sampler), type(sampler).__qualname__)
    raise UsageError(
        f"sampler {name} takes one objective, the search has {objectives}; samplers for several: {several}"
    )
