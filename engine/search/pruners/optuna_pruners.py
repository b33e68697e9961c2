"""Optuna's pruners, through its ask, report, prune and tell.

A config is a trial, a launch a step: what a pruner compares at a step is what was known after as many launches.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from statistics import median
from typing import ClassVar
from warnings import catch_warnings, simplefilter

import optuna
from optuna.trial import TrialState

from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import Verdict
from gemmtune.engine.seams.pruner import Candidate, Pruner

__all__ = ["HyperbandPruner", "MedianPruner", "OptunaPruner", "SuccessiveHalvingPruner", "WilcoxonPruner"]


class OptunaPruner(Pruner):
    """What Optuna's pruners share; a subclass names the one it runs, with Optuna's defaults.

    The task's finished measurements are trials of a study: complete where they are ok, pruned where they were dropped
    among their launches; other failures have no launches, and are left out.
    """

    judges_launches = True

    rule: ClassVar[str]
    """What a rejection says of the candidate."""
    notes: ClassVar[bool] = False
    """Whether Optuna's pruner, when it is asked, notes in a trial what it compares others with later."""

    def __init__(self) -> None:
        """Begin without a study."""
        self._told: dict[Task, tuple[list[Measurement], optuna.Study]] = {}

    @abstractmethod
    def _pruner(self) -> optuna.pruners.BasePruner:
        """A fresh pruner of Optuna."""

    def judge(self, candidate: Candidate, history: Sequence[Measurement]) -> Verdict:
        """No where Optuna's pruner says so after one of the launches; yes before the first."""
        if not candidate.samples_ns:
            return Verdict.yes()
        with _quiet():
            study = self._study(candidate.task)
            study.add_trials(self._past(candidate.task, history).get_trials(deepcopy=False))
            trial = study.ask()
            for launches, value in enumerate(self._values(candidate.samples_ns), start=1):
                trial.report(value, launches)
                if trial.should_prune():
                    time_us = median(candidate.samples_ns[:launches]) / 1e3
                    after = f"after {launches} launch{'es' if launches > 1 else ''} of {time_us:.2f} µs in the median"
                    return Verdict.no(self.rule, f"{self.rule} of {len(study.trials) - 1} before it, {after}")
        return Verdict.yes()

    def _values(self, samples_ns: Sequence[float]) -> list[float]:
        """What a step is worth: the median of the launches up to it, for a launch may come late."""
        return [median(samples_ns[:launches]) for launches in range(1, len(samples_ns) + 1)]

    def _past(self, task: Task, history: Sequence[Measurement]) -> optuna.Study:
        """The study of the history. One that is longer than the last one goes on from it: a memory, not a state."""
        told, study = self._told.get(task, ([], None))
        if study is None or len(told) > len(history) or any(a is not b for a, b in zip(told, history, strict=False)):
            told, study = [], self._study(task)
        for measurement in history[len(told) :]:
            self._tell(study, measurement)
            told.append(measurement)
        self._told[task] = told, study
        return study

    def _tell(self, study: optuna.Study, measurement: Measurement) -> None:
        if not measurement.samples_ns:
            return
        trial = study.ask()
        for launches, value in enumerate(self._values(measurement.samples_ns), start=1):
            trial.report(value, launches)
            if self.notes:
                trial.should_prune()
        if measurement.status is Status.OK and measurement.estimate is not None:
            study.tell(trial, measurement.estimate.time_ns)
        else:
            study.tell(trial, state=TrialState.PRUNED)

    def _study(self, task: Task) -> optuna.Study:
        # Hyperband draws a trial's bracket from the study's name.
        sampler = optuna.samplers.RandomSampler(0)
        return optuna.create_study(study_name=task.key, sampler=sampler, pruner=self._pruner(), direction="minimize")


class MedianPruner(OptunaPruner):
    """Drops what is slower than the median, from the sixth config on."""

    rule = "slower than the median"

    def _pruner(self) -> optuna.pruners.BasePruner:
        return optuna.pruners.MedianPruner()


class SuccessiveHalvingPruner(OptunaPruner):
    """Lets the best quarter go on after 1, 4 and 16 launches (asynchronous successive halving)."""

    rule = "not among the fastest quarter"
    notes = True

    def _pruner(self) -> optuna.pruners.BasePruner:
        return optuna.pruners.SuccessiveHalvingPruner(min_resource=1)


class HyperbandPruner(OptunaPruner):
    """Successive halving by thirds, in brackets that begin at 1, 3 and 9 launches."""

    rule = "not among the fastest third of its bracket"
    notes = True

    def _pruner(self) -> optuna.pruners.BasePruner:
        return optuna.pruners.HyperbandPruner(min_resource=1)


class WilcoxonPruner(OptunaPruner):
    """Drops what a signed-rank test of the launches finds slower than the best so far (p below 0.1)."""

    rule = "slower than the best, by Wilcoxon's test,"

    def _pruner(self) -> optuna.pruners.BasePruner:
        return optuna.pruners.WilcoxonPruner()

    def _values(self, samples_ns: Sequence[float]) -> list[float]:
        """The launches themselves, which the test compares one by one."""
        return list(samples_ns)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without Optuna's greeting and warnings: that a class is experimental, that the best has fewer launches."""
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        with catch_warnings():
            simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            simplefilter("ignore", UserWarning)
            yield
    finally:
        optuna.logging.set_verbosity(level)
