"""Recorded landscapes of the study, and the ones that hyperparameters were chosen on."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.studies.comparison import BUDGETS, Score, compare
from gemmtune.engine.studies.performance_score import PerformanceScore

CHOSEN_ON = (
    "16x4096x4096:bf16:nt",
    "64x4096x14336:bf16:nt",
    "256x6144x4096:bf16:nt",
    "1024x1280x3420:bf16:nt",
    "8192x1024x8192:bf16:nt",
    "gemm_rtx2080ti",
    "conv_a100",
    "dedisp_mi250x",
)
"""Landscapes to choose on: every other recorded problem, and one GPU per foreign kernel."""

_BUDGET_FACTOR = 1.25
"""Budget over the range of P, since a search's evaluations are cheaper on average than those of random search."""


def h200() -> list[Landscape]:
    """Return the ten triton_mm landscapes that ship with gemmtune, small M first."""
    return [landscape for path in embedded("triton_mm") for landscape in read_landscapes(path)]


def thinned(task: LandscapeSearch, seed: int, *, cold: bool = False, share: float = 0.15) -> LandscapeSearch:
    """Return the task without a random share of its configs.

    A search that draws nothing is equal for every seed, so its result on one task may be luck.
    """
    draw = random.Random(f"{task.landscape.name}/{seed}")
    points = {config: point for config, point in task.landscape.points.items() if draw.random() >= share}
    thin = LandscapeSearch(replace(task.landscape, points=points), cold=cold)
    thin.features = task.features  # cached per config already
    return thin


def foreign_files(folder: Path) -> dict[str, Path]:
    """Return the landscape files of other kernels by name; each holds one task with the cost of each evaluation."""
    return {path.name.removesuffix(".csv.gz"): path for path in sorted(folder.glob("*.csv.gz"))}


class ForeignTask:
    """Landscape of another kernel, with searches and their score P."""

    def __init__(self, path: Path) -> None:
        [landscape] = read_landscapes(path)
        self.task = LandscapeSearch(landscape)
        self._optimum_ns = landscape.optimum_ns
        last = PerformanceScore(landscape).evaluations[1]  # every one of these landscapes has a range
        self._budget = min(max(int(_BUDGET_FACTOR * last), BUDGETS[-1]), len(landscape.points))

    def run(self, sampler: type[Sampler], seed: int, batch: int = 1) -> tuple[Trial, ...]:
        """Run one search past the range of P, or until it finds the optimum."""
        tuner = self.task.begin(sampler, self._budget, seed=seed, batch=batch)
        while not tuner.done and (tuner.best is None or tuner.best.score > self._optimum_ns):
            tuner.tell([self.task.outcome(config) for config in tuner.next_batch()])
        return tuner.trials

    def score(self, runs: Sequence[Sequence[Trial]]) -> Score:
        """Return P of several searches, with its interval."""
        return compare([self.task.landscape], {"": [[trials] for trials in runs]}, self._budget).curve("").score


def fractions(task: LandscapeSearch, trials: Sequence[Trial], budgets: Sequence[int]) -> list[float]:
    """Return optimum over best within each budget; 0 if nothing was found."""
    found = np.array([math.inf if t.score is None else t.score for t in trials])
    best = np.minimum.accumulate(found)
    return [task.landscape.optimum_ns / best[min(budget, len(best)) - 1] for budget in budgets]
