"""Compare our score P with autotuning_methodology's. Usage: check_score.py LANDSCAPE... [--seeds 10].

The script needs autotuning_methodology 1.1.0, which is no dependency of gemmtune.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from autotuning_methodology.baseline import RandomSearchCalculatedBaseline
from autotuning_methodology.curves import StochasticOptimizationAlgorithm
from autotuning_methodology.searchspace_statistics import SearchspaceStatistics

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes
from gemmtune.engine.studies.performance_score import PerformanceScore
from gemmtune.engine.studies.sampler_study import replays


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("landscapes", nargs="+", type=Path)
    arguments.add_argument("--samplers", nargs="+", default=["random", "evolution"])
    arguments.add_argument("--seeds", type=int, default=10)
    given = arguments.parse_args()
    for path in given.landscapes:
        [landscape] = read_landscapes(path)
        scorer = PerformanceScore(landscape)
        budget = int(1.5 * scorer.evaluations[1])
        for sampler in given.samplers:
            searches = [found for [found] in replays([landscape], sampler, budget, seeds=given.seeds)]
            theirs = package_scores(landscape, searches)
            spread = f"{np.mean(theirs):.4f} ± {np.std(theirs):.4f}"
            print(f"{landscape.name} {sampler}: ours {scorer.score(searches):.4f}, theirs {spread}", flush=True)


def package_scores(landscape: Landscape, searches: Sequence[Sequence[Trial]], draws: int = 10) -> list[float]:
    """Return the package's score for several draws, since it is fitted to random parts of the data."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "landscape_T4.json"
        path.write_text(json.dumps({"metadata": {}, "schema_version": "1.0.0", "results": t4(landscape)}))
        stats = SearchspaceStatistics("kernel", "device", True, ["compilation"], ["time"], path, full_validate=False)
    _, _, start, end = stats.cutoff_point_fevals_time_start_end(0.01, 0.95)
    times = np.linspace(start, end, 1000)
    curve = StochasticOptimizationAlgorithm(description(landscape, searches))
    scores = []
    for draw in range(draws):
        np.random.seed(draw)  # what scikit-learn draws from, where it is given nothing
        dist = stats.objective_performances_total_sorted
        found = curve.get_curve_over_time(times.copy(), dist=dist, confidence_level=0.95, return_split=False)
        baseline = RandomSearchCalculatedBaseline(stats)
        scores.append(float(np.mean(baseline.get_standardised_curve(times, found[2], x_type="time"))))
    return scores


def t4(landscape: Landscape) -> list[dict[str, object]]:
    return [
        {
            "configuration": dict(point.config),
            "times": {"compilation": 1.0 if point.cost_seconds is None else point.cost_seconds},
            "invalidity": "correct" if point.time_ns else "runtime",
            "correctness": 1,
            "measurements": [{"name": "time", "value": point.time_ns or "error", "unit": "ns"}],
        }
        for point in landscape.points.values()
    ]


def description(landscape: Landscape, searches: Sequence[Sequence[Trial]]) -> SimpleNamespace:
    """Return a strategy's runs as the package expects them, in arrays of shape (evaluations, runs)."""
    shape = (max(map(len, searches)), len(searches))
    evaluations, spent, best = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape, np.nan)
    for run, trials in enumerate(searches):
        costs = [landscape.points[trial.config].cost_seconds for trial in trials]
        found = [np.nan if trial.score is None else trial.score for trial in trials]
        evaluations[: len(trials), run] = np.arange(1, len(trials) + 1)
        spent[: len(trials), run] = np.cumsum([1.0 if cost is None else cost for cost in costs])
        best[: len(trials), run] = np.fmin.accumulate(found)
    results = SimpleNamespace(
        fevals_results=evaluations,
        objective_time_results=spent,
        objective_time_results_per_key=spent[None],
        objective_performance_best_results=best,
        objective_performance_results_per_key=best[None],
    )
    names = {"group_name": "arm", "group_display_name": "arm", "device_name": "device", "application_name": "kernel"}
    return SimpleNamespace(**names, stochastic=True, minimization=True, get_results=lambda: results)


if __name__ == "__main__":
    main()
