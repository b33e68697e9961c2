"""Time the proposals of `transfer` with 10,000 records. Usage: thinking.py --json OUT [--processes 10].

The script measures the CPU time of a search of 32 in batches of eight, in a fresh process and then
again. It searches the recorded problem with most configs; the other problems' records are the history. The time to load
scikit-learn and to find the threaded libraries is measured separately, once per process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import platform
import random
import time
from pathlib import Path

from landscapes import h200

from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.search.models.reproducible import one_thread

RECORDS, BUDGET, BATCH = 10_000, 32, 8


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--processes", type=int, default=10)
    given = arguments.parse_args()
    runs = []
    for _ in range(given.processes):
        with multiprocessing.get_context("spawn").Pool(1) as fresh:
            runs.append(fresh.apply(searches))
    result = {"records": runs[0]["records"], "configs": runs[0]["configs"], "machine": platform.machine()}
    units = {"loading, once a process": "cpu ms", "first search": "cpu ms a config", "second search": "cpu ms a config"}
    for name, unit in units.items():
        spent = sorted(run[name] for run in runs)
        result[f"{name}, {unit}"] = {"median": spent[len(spent) // 2], "least": spent[0], "most": spent[-1]}
    given.json.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(result, indent=1))


def searches() -> dict[str, float]:
    tasks = sorted((LandscapeSearch(landscape) for landscape in h200()), key=lambda task: -len(task.feasible))
    largest, others = tasks[0], tasks[:0:-1]
    history, missing = [], RECORDS
    for number, task in enumerate(others):  # the small landscapes first, each up to its size
        count = min(missing // (len(others) - number), len(task.feasible))
        missing -= count
        configs = random.Random(number).sample(task.feasible, count)
        history.append(task.as_source([task.outcome(config) for config in configs]))
    began = time.process_time()
    importlib.import_module("sklearn.ensemble")
    with one_thread():
        pass
    loaded = round(1e3 * (time.process_time() - began))
    spent = [search(largest, history, seed) for seed in (0, 1)]
    return {
        "loading, once a process": loaded,
        "records": sum(len(source.trials) for source in history),
        "configs": len(largest.feasible),
        "first search": spent[0],
        "second search": spent[1],
    }


def search(task: LandscapeSearch, history: list, seed: int) -> float:
    began, asked = time.process_time(), 0
    tuner = task.begin(registry.sampler("transfer"), BUDGET, seed=seed, batch=BATCH, history=history)
    while not tuner.done:
        trials = [task.outcome(config) for config in tuner.next_batch()]
        tuner.tell(trials)
        asked += len(trials)
    return round(1e3 * (time.process_time() - began) / asked, 2)


if __name__ == "__main__":
    main()
