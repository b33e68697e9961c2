"""Optuna's pruners, applied to the launches of recorded landscapes.

A config is a trial and a launch is a step: at each step a pruner compares trials after equally many launches. They were
pruners of gemmtune once, and ran on recordings alone.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from statistics import median
from typing import ClassVar

import optuna
from optuna.trial import TrialState

from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.search.quiet_optuna import quiet_optuna


class OptunaPruner:
    """Base class of the pruners; a subclass names the one of Optuna that it runs, with Optuna's defaults.

    The task's finished measurements are trials of a study: complete where they are ok, pruned where they were dropped
    during their launches. Other failures have no launches and are left out.
    """

    make_pruner: ClassVar[Callable[[], optuna.pruners.BasePruner]]
    """Function that creates the pruner of Optuna to run."""
    marks_trials: ClassVar[bool] = False
    """Whether `should_prune` stores values in a trial, with which Optuna's pruner compares later trials."""

    def __init__(self) -> None:
        self._studies: dict[Task, tuple[list[Measurement], optuna.Study]] = {}

    def pruned(self, found: Measurement, history: Sequence[Measurement]) -> Measurement:
        """Cut a recorded measurement after the launch behind which Optuna's pruner drops it; never after the last."""
        if found.status in (Status.INVALID, Status.BUILD_FAILED):
            return found
        with quiet_optuna(), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a best trial with fewer launches
            for launches in range(1, len(found.samples_ns)):
                if self._drops(found.task, found.samples_ns[:launches], history):
                    samples = found.samples_ns[:launches]
                    return replace(found, status=Status.INVALID, reason="pruned by", samples_ns=samples, estimate=None)
        return found

    def _drops(self, task: Task, samples_ns: Sequence[float], history: Sequence[Measurement]) -> bool:
        study = self._new_study(task)
        study.add_trials(self._study_of(task, history).get_trials(deepcopy=False))
        trial = study.ask()
        for launches, value in enumerate(self._values(samples_ns), start=1):
            trial.report(value, launches)
            if trial.should_prune():
                return True
        return False

    def _values(self, samples_ns: Sequence[float]) -> list[float]:
        """Return the value of each step: the median of the launches so far, since single launches may be late."""
        return [median(samples_ns[:launches]) for launches in range(1, len(samples_ns) + 1)]

    def _study_of(self, task: Task, history: Sequence[Measurement]) -> optuna.Study:
        """Return the study of a history, extended from the cached study if that one covers its beginning."""
        told, study = self._studies.get(task, ([], None))
        if study is None or len(told) > len(history) or any(a is not b for a, b in zip(told, history, strict=False)):
            told, study = [], self._new_study(task)
        for measurement in history[len(told) :]:
            self._add(study, measurement)
            told.append(measurement)
        self._studies[task] = told, study
        return study

    def _add(self, study: optuna.Study, measurement: Measurement) -> None:
        if not measurement.samples_ns:
            return
        trial = study.ask()
        for launches, value in enumerate(self._values(measurement.samples_ns), start=1):
            trial.report(value, launches)
            if self.marks_trials:
                trial.should_prune()
        if measurement.status is Status.OK and measurement.estimate is not None:
            study.tell(trial, measurement.estimate.time_ns)
        else:
            study.tell(trial, state=TrialState.PRUNED)

    def _new_study(self, task: Task) -> optuna.Study:
        # Hyperband draws a trial's bracket from the study's name.
        sampler = optuna.samplers.RandomSampler(0)
        return optuna.create_study(study_name=task.key, sampler=sampler, pruner=type(self).make_pruner())


class MedianPruner(OptunaPruner):
    """Pruner that drops candidates slower than the median, from the sixth config on."""

    make_pruner = optuna.pruners.MedianPruner


class SuccessiveHalvingPruner(OptunaPruner):
    """Pruner that keeps the fastest quarter after 1, 4 and 16 launches.

    Source: successive halving (proceedings.mlr.press/v51/jamieson16.html).
    """

    make_pruner = partial(optuna.pruners.SuccessiveHalvingPruner, min_resource=1)
    marks_trials = True


class HyperbandPruner(OptunaPruner):
    """Pruner that keeps the fastest thirds, in brackets that start at 1, 3 and 9 launches.

    Source: Hyperband (jmlr.org/papers/volume18/16-558/16-558.pdf).
    """

    make_pruner = partial(optuna.pruners.HyperbandPruner, min_resource=1)
    marks_trials = True


class WilcoxonPruner(OptunaPruner):
    """Pruner that drops candidates whose launches a signed-rank test finds slower than the best's (p below 0.1)."""

    make_pruner = optuna.pruners.WilcoxonPruner

    def _values(self, samples_ns: Sequence[float]) -> list[float]:
        """Return the launches themselves, which the test compares in pairs."""
        return list(samples_ns)


BY_LAUNCHES = {
    "median": MedianPruner,
    "successive_halving": SuccessiveHalvingPruner,
    "hyperband": HyperbandPruner,
    "wilcoxon": WilcoxonPruner,
}
