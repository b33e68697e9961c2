"""The recorded landscapes of the study, which of them hyperparameters were chosen on, and the score P."""

from __future__ import annotations

import csv
import gzip
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.isotonic import IsotonicRegression

from gemmtune.engine.campaign.recorded_task import RecordedTask
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.embedded import embedded
from gemmtune.engine.store.landscape_file import read_landscapes

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
"""Every other recorded problem, and of each foreign kernel one GPU. The rest was kept for the figures."""

_COSTS = ("compile_ms", "bench_ms", "framework_ms")


def h200() -> list[Landscape]:
    """The ten problems of triton_mm that ship with gemmtune, small M first."""
    return [landscape for path in embedded("triton_mm") for landscape in read_landscapes(path)]


def foreign_files(folder: Path) -> dict[str, Path]:
    """Landscapes of other kernels by name: files that hold one task each, with what each evaluation cost."""
    return {path.name.removesuffix(".csv.gz"): path for path in sorted(folder.glob("*.csv.gz"))}


class ForeignTask:
    """A landscape with the cost of each evaluation, and its score P."""

    def __init__(self, path: Path) -> None:
        [landscape] = read_landscapes(path)
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            costs = [sum(float(row[name] or 0) for name in _COSTS) for row in csv.DictReader(stream)]
        self.task = RecordedTask(landscape)
        self._cost = dict(zip(landscape.points, costs, strict=True))
        points = [landscape.points[config] for config in self.task.feasible]
        self._sorted = np.sort([p.time_ns for p in points if p.time_ns is not None])
        works = np.array([self._cost[p.config] for p in points if p.time_ns is not None])
        fails = np.array([self._cost[p.config] for p in points if p.time_ns is None])
        self.cutoff = self._evaluations(0.95)
        self._usual = float(np.median(works))
        self._range = np.linspace(self._evaluations(0.01), self.cutoff, 1000) * self._usual
        mean = works.mean() + (fails.mean() * len(fails) / len(points) if len(fails) else 0.0)
        drawn = np.maximum(np.round(self._range / mean), 1)
        self._random = self._sorted[::-1][self._expected_rank(drawn)]

    def _evaluations(self, share: float) -> int:
        """Evaluations random search needs to come so far from the median to the optimum."""
        worst_first = self._sorted[::-1]
        goal = self._sorted[0] + (np.median(self._sorted) - self._sorted[0]) * (1 - share)
        rank = int(np.argmax(worst_first <= goal))
        rank -= worst_first[rank] == self._sorted[0]
        return math.ceil(rank / (len(worst_first) + 1 - rank))

    def _expected_rank(self, draws: np.ndarray) -> np.ndarray:
        """The rank, from the worst, that the best of so many draws has on average."""
        count = len(self._sorted)
        return np.minimum(np.round(draws * (count + 1) / (draws + 1)), count - 1).astype(int)

    def run(self, sampler: type[Sampler], seed: int, batch: int = 1) -> tuple[Trial, ...]:
        """One search to the end of the range of P, or until the optimum is found: nothing changes after that."""
        tuner = self.task.begin(sampler, len(self.task.feasible), seed=seed, batch=batch)
        spent = 0.0
        while spent < 1.1 * self._range[-1] and (tuner.best is None or tuner.best.score > self._sorted[0]):
            asked = tuner.next_batch()
            spent += sum(self._cost[config] for config in asked)
            tuner.tell([self.task.outcome(config) for config in asked])
        return tuner.trials

    def score(self, runs: Sequence[Sequence[Trial]]) -> float:
        """P of several searches (Willemsen et al. 2024, as autotuning_methodology 1.1 computes it).

        The best found so far, as a rank among all configs, over the time the recorded evaluations took, fitted by
        isotonic regression; between the expectation of random search (0) and the optimum (1), averaged over time.
        """
        times, ranks = [], []
        for trials in runs:
            found = np.array([math.inf if t.score is None else t.score for t in trials])
            best = np.minimum.accumulate(found)
            known = np.isfinite(best)
            spent = np.cumsum([self._cost[t.config] for t in trials])
            after = np.arange(spent[-1], 1.1 * self._range[-1], self._usual)[1:]
            times.append(np.concatenate([spent[known], after]))
            ranks.append(np.searchsorted(self._sorted, np.concatenate([best[known], np.full(len(after), best[-1])])))
        time, rank = np.concatenate(times), np.concatenate(ranks)
        near = (time >= 0.9 * self._range[0]) & (time <= 1.1 * self._range[-1])
        fit = IsotonicRegression(increasing=False, out_of_bounds="clip").fit(time[near], rank[near])
        curve = self._sorted[np.round(fit.predict(self._range)).astype(int)]
        return float(np.mean((curve - self._random) / (self._sorted[0] - self._random)))


def fractions(task: RecordedTask, trials: Sequence[Trial], budgets: Sequence[int]) -> list[float]:
    """Optimum over the best found within each budget; 0 where nothing was found."""
    found = np.array([math.inf if t.score is None else t.score for t in trials])
    best = np.minimum.accumulate(found)
    return [task.landscape.optimum_ns / best[min(budget, len(best)) - 1] for budget in budgets]
