"""Which hyperparameters: each by itself changed, on the landscapes set apart for choosing. Usage: choose.py --json OUT.

Each seed searches the H200 problems with other configs left out.
A hyperparameter is a constant of a sampler's module; what is chosen is written there by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from landscapes import CHOSEN_ON, ForeignTask, foreign_files, fractions, h200, thinned

from gemmtune.engine.scheduling.landscape_search import RecordedTask
from gemmtune.engine.seams import registry

TRIED = {
    "transfer": {
        "surrogate": {
            "_LENGTH": (0.25, 0.8, 1.2),
            "_SPREAD": (0.25, 0.75, 1.2),
            "_GROWTH": (1.0, 1.2),
            "_PRIOR_WEIGHT": (1.0, 4.0),
            "_PRIOR_VARIANCE": (0.0025, 0.04),
        },
        "transfer": {
            "_OPENING": (2, 6, 8),
            "_FEW": (1, 2, 8),
            "_YOUNG": (16, 64),
            "_PARAMS": (0.2, 0.6, 1.0),
            "_KNOWN": (1.0, 2.0, 3.0),
            "_DOUBT": (2, 3, 6, 1000),
        },
        "lessons": {"_TREES": (50,), "_LEAF": (1, 5), "_SHARE": (0.3, 1.0), "_RECORDS": (1000, 4000), "_SLOW": (1.0,)},
    },
    "evolution": {
        "evolution": {
            "_INITIAL": (0.1, 0.35, 0.5),
            "_POPULATION": (0.06, 0.25),
            "_TOURNAMENT": (2, 3),
            "_MUTATIONS": (1.0, 1.5, 3.0),
            "_IMMIGRANTS": (0.0, 0.15),
            "_CLIMBERS": (0.0, 0.2, 0.4),
            "_PATIENCE": (16, 32, 1000),
        }
    },
}
BUDGETS = (8, 16, 32)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--sampler", default="transfer", choices=TRIED)
    arguments.add_argument("--seeds", type=int, default=6)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--only", nargs="*", help="constants to change (default: all)")
    arguments.add_argument("--foreign", type=Path, help="folder of landscapes of other kernels")
    given = arguments.parse_args()
    study = Study(given.sampler, given.seeds, given.batch, given.foreign)
    results = []
    for label, values in settings(given.sampler, given.only):
        began = time.process_time()
        with changed(values):
            result = {"setting": label, **study.run()}
        result["cpu seconds"] = round(time.process_time() - began, 1)
        results.append(result)
        print(json.dumps(result), flush=True)
    given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def settings(sampler: str, only: list[str] | None) -> Iterator[tuple[str, dict[tuple[str, str], object]]]:
    yield "as it is", {}
    for module, constants in TRIED[sampler].items():
        for name, values in constants.items():
            if only is None or name in only:
                for value in values:
                    yield f"{module}.{name} = {value}", {(module, name): value}


class changed:  # noqa: N801
    """Constants of modules, for a while."""

    def __init__(self, values):
        self._values = {(importlib.import_module(f"gemmtune.engine.search.{m}"), n): v for (m, n), v in values.items()}

    def __enter__(self):
        self._kept = {(module, name): getattr(module, name) for module, name in self._values}
        self._set(self._values)

    def __exit__(self, *error):
        self._set(self._kept)

    def _set(self, values):
        for (module, name), value in values.items():
            setattr(module, name, value)


class Study:
    def __init__(self, sampler: str, seeds: int, batch: int, foreign: Path | None) -> None:
        self._sampler, self._seeds, self._batch = registry.sampler(sampler), range(seeds), batch
        chosen = [landscape for landscape in h200() if landscape.name in CHOSEN_ON]
        self._bare = [RecordedTask(landscape, cold=True) for landscape in chosen]
        self._tasks = [RecordedTask(landscape) for landscape in chosen]
        self._records = [task.as_source([task.outcome(config) for config in task.feasible]) for task in self._tasks]
        files = foreign_files(foreign) if foreign else {}
        self._foreign = {name: ForeignTask(path) for name, path in files.items() if name in CHOSEN_ON}

    def run(self) -> dict[str, object]:
        """Mean optimum over best found within 8, 16 and 32 evaluations; P of the foreign kernels."""
        results: dict[str, object] = {"without seeds": self._mean(self._bare), "with seeds": self._mean(self._tasks)}
        if self._sampler.learns:
            results["warm"] = self._mean(self._tasks, warm=True)
        for name, task in self._foreign.items():
            found = task.score([task.run(self._sampler, seed, self._batch) for seed in self._seeds])
            results[name] = round(found.value, 3)
        return results

    def _mean(self, tasks: list[RecordedTask], *, warm: bool = False) -> list[float]:
        found = []
        for number, task in enumerate(tasks):
            history = [past for i, past in enumerate(self._records) if i != number] if warm else []
            for seed in self._seeds:
                thin = thinned(task, seed, cold=not task.seeds)
                trials = thin.search(self._sampler, BUDGETS[-1], seed=seed, batch=self._batch, history=history)
                found.append(fractions(thin, trials, BUDGETS))
        return [round(float(mean), 4) for mean in np.mean(found, axis=0)]


if __name__ == "__main__":
    main()
