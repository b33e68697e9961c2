"""Compare Kernel Tuner's strategies with ours. Usage: run.py LANDSCAPE... --json OUT [--seeds 20] [--arms A B].

The script needs kernel_tuner 1.5.0 and no GPU. Every arm searches each landscape by itself, past the range of P. A new
run skips the arms that OUT has.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path

from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Trial
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes
from gemmtune.engine.studies.comparison import BUDGETS, compare
from gemmtune.engine.studies.performance_score import PerformanceScore
from gemmtune.engine.studies.sampler_study import Replay

PEERS = ("genetic_algorithm", "adaptive_tabu_greywolf", "hybrid_vndx")
OURS = ("random", "evolution", "transfer", "tpe")
MOST = {"tpe": 500}
"""Largest budget per arm, since each ask of TPE takes longer than the one before."""
BUDGET_FACTOR = 1.25
"""Budget over the range of P, since an arm's evaluations are cheaper on average than those of random search."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("landscapes", nargs="+", type=Path)
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--arms", nargs="+", default=[*OURS, *PEERS])
    arguments.add_argument("--seeds", type=int, default=20)
    given = arguments.parse_args()
    results = json.loads(given.json.read_text()) if given.json.exists() else []
    known = {(result["landscape"], result["arm"]) for result in results}
    for path in given.landscapes:
        [landscape] = read_landscapes(path)
        first, last = PerformanceScore(landscape).evaluations  # every one of these landscapes has a range
        budget = min(max(int(BUDGET_FACTOR * last), BUDGETS[-1]), len(landscape.points))
        for arm in given.arms:
            if (landscape.name, arm) in known or budget > MOST.get(arm, budget):
                continue
            began = time.process_time()
            found = list(searches(landscape, arm, budget, given.seeds))
            seconds = (time.process_time() - began) / given.seeds
            results.append(record(landscape, arm, found, budget, (first, last), seconds))
            given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print(json.dumps(results[-1]), flush=True)


def searches(landscape: Landscape, arm: str, budget: int, seeds: int) -> Iterable[Replay]:
    sys.path.append(str(Path(__file__).parents[1] / "leaderboard"))
    import kernel_tuner_samplers

    kind = kernel_tuner_samplers.sampler(arm) if arm in PEERS else registry.sampler(arm)
    return ([search(LandscapeSearch(landscape), kind, budget, seed)] for seed in range(seeds))


def search(task: LandscapeSearch, kind: type[Sampler], budget: int, seed: int) -> tuple[Trial, ...]:
    """Return the trials of one search up to the optimum."""
    tuner = task.begin(kind, budget, seed=seed)
    while not tuner.done and (tuner.best is None or tuner.best.score > task.landscape.optimum_ns):
        tuner.tell([task.outcome(config) for config in tuner.next_batch()])
    return tuner.trials


def record(
    landscape: Landscape, arm: str, found: list[Replay], budget: int, scored: tuple[int, int], seconds: float
) -> dict[str, object]:
    evaluated = sum(len(search) for [search] in found) / len(found)
    course = compare([landscape], {arm: found}, budget).curve(arm, landscape.name)
    return {
        "landscape": landscape.name,
        "arm": arm,
        "seeds": len(found),
        "budget": budget,
        "range of P": scored,
        "P": [round(value, 3) for value in (course.score.value, course.score.low, course.score.high)],
        "of optimum": {budget: round(course.mean[budget - 1], 4) for budget in BUDGETS},
        "evaluations to": {goal: [reached.median, reached.share] for goal, reached in course.reached.items()},
        "evaluated": round(evaluated, 1),
        "cpu ms an evaluation": round(1e3 * seconds / evaluated, 2),
    }


if __name__ == "__main__":
    main()
