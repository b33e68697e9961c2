"""Compare samplers by the evaluations they need. Usage: run.py --json OUT [--seeds 20] [--foreign FOLDER].

Every arm searches the same recorded landscapes in one process, without a GPU; `landscapes.py` lists the ones set apart
for choosing hyperparameters.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
from landscapes import CHOSEN_ON, ForeignTask, foreign_files, fractions, h200, thinned

from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry

BUDGETS = (8, 16, 32)
"""Budgets to report; only the longest is searched."""
H200_ARMS = (
    # sampler, whether it gets the space's seeds, history
    ("random", False, "none"),
    ("tpe", True, "none"),
    ("evolution", True, "none"),
    ("transfer", True, "none"),
    ("evolution", False, "none"),
    ("transfer", False, "none"),
    ("transfer", True, "records of the nine others"),
    ("transfer", True, "searches of those before"),
)
BATCHES = (1, 8)
"""Batch sizes: single configs, and the batch of a campaign."""
THINNED_ARMS = (
    ("transfer", True, "none"),
    ("transfer", False, "none"),
    ("transfer", True, "records of the nine others"),
)
"""Arms that also search each problem with other configs left out in each repetition."""
FOREIGN_ARMS = ("random", "evolution", "transfer")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--seeds", type=int, default=20)
    arguments.add_argument("--foreign", type=Path, help="folder of landscapes of other kernels")
    given = arguments.parse_args()
    results: dict[str, list[dict[str, object]]] = {"h200": [], "foreign": []}
    arms = [(*arm, False) for arm in H200_ARMS] + [(*arm, True) for arm in THINNED_ARMS]
    for arm, batch in product(arms, BATCHES):
        results["h200"].append(search_h200(*arm, batch, seeds=given.seeds))
        print(json.dumps({k: v for k, v in results["h200"][-1].items() if k != "problems"}), flush=True)
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    for name, path in (foreign_files(given.foreign) if given.foreign else {}).items():
        results["foreign"].append(score_foreign(name, ForeignTask(path), given.seeds))
        print(json.dumps(results["foreign"][-1]), flush=True)
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def search_h200(name: str, seeded: bool, history: str, thin: bool, batch: int, seeds: int) -> dict[str, object]:
    """Run one arm over ten problems; return optimum over best, its interval over the seeds, and the worst problem."""
    tasks = [LandscapeSearch(landscape, cold=not seeded) for landscape in h200()]
    records = [task.as_source() for task in tasks]
    found = np.empty((len(tasks), seeds, len(BUDGETS)))
    began, asked = time.process_time(), 0
    for seed in range(seeds):
        before: list[SourceTask] = []
        for number, task in enumerate(tasks):
            known = {"none": [], "searches of those before": list(before)}.get(
                history, [source for i, source in enumerate(records) if i != number]
            )
            searched = thinned(task, seed, cold=not seeded) if thin else task
            trials = searched.search(registry.sampler(name), BUDGETS[-1], seed=seed, batch=batch, history=known)
            found[number, seed] = fractions(searched, trials, BUDGETS)
            asked += len(trials)
            before.append(task.as_source(trials))
    spent = time.process_time() - began
    chosen = np.array([task.landscape.name in CHOSEN_ON for task in tasks])
    return {
        "sampler": name,
        "seeds of the space": seeded,
        "history": history,
        "configs left out": thin,
        "batch": batch,
        "repetitions": seeds,
        "mean": by_budget(found.mean(axis=(0, 1))),
        "half of the 95 % interval": by_budget(1.96 * found.mean(axis=0).std(axis=0, ddof=1) / seeds**0.5),
        "worst problem": by_budget(found.mean(axis=1).min(axis=0)),
        "mean of those kept": by_budget(found[~chosen].mean(axis=(0, 1))),
        "cpu ms a config": round(1e3 * spent / asked, 1),
        "problems": {
            task.landscape.name: by_budget(mean) for task, mean in zip(tasks, found.mean(axis=1), strict=True)
        },
    }


def by_budget(values: Sequence[float]) -> dict[str, float]:
    return {str(budget): round(float(value), 4) for budget, value in zip(BUDGETS, values, strict=True)}


def score_foreign(landscape: str, task: ForeignTask, seeds: int) -> dict[str, object]:
    """Return P of each arm on one landscape, with its 95 % interval."""
    result: dict[str, object] = {"landscape": landscape, "hyperparameters chosen on it": landscape in CHOSEN_ON}
    for name, batch in product(FOREIGN_ARMS, BATCHES):
        began = time.process_time()
        runs = [task.run(registry.sampler(name), seed, batch) for seed in range(seeds)]
        spent, asked = time.process_time() - began, sum(len(trials) for trials in runs)
        score = task.score(runs)
        result[f"{name}, batch {batch}"] = {
            "P": [value if value is None else round(value, 3) for value in (score.value, score.low, score.high)],
            "optimum found": sum(min(t.score for t in r if t.score) == task.task.landscape.optimum_ns for r in runs),
            "cpu ms a config": round(1e3 * spent / asked, 1),
        }
    return result


if __name__ == "__main__":
    main()
