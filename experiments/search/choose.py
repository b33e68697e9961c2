"""Compare hyperparameters of a sampler, changing one at a time. Usage: choose.py --json OUT.

The searches use the landscapes set apart for choosing; each seed leaves other configs of the H200 problems out. A
hyperparameter is an argument of the sampler or a constant of a module; a chosen value is written there by hand.
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

from gemmtune.engine.records.search import Search
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler

ARGUMENTS = {
    "transfer": {
        "initial": (2, 4, 8),
        "initial_seeds": (2, 3, 6, 8),
        "small_batch": (1, 2, 8),
        "small_batch_until": (16, 64),
        "skeptical_every": (2, 3, 6, 1000),
        "more_seeds_after": (4, 12, 1000),
        "promising": (0.0, 0.5),
    },
    "evolution": {
        "children": (16, 64),
        "initial": (2, 8),
        "generation": (8, 32),
        "population": (4, 8, 16),
        "tournament_size": (2, 3),
        "mean_mutations": (1.0, 1.5, 3.0),
        "restart_after": (16, 32, 1000),
    },
}
"""Values tried per argument of each sampler."""
CONSTANTS = {
    "transfer": {
        "kernel": {
            "_LENGTH_SCALE": (0.25, 0.8, 1.2),
            "LENGTH_SPREAD": (0.25, 0.75, 1.2),
            "_REFIT_GROWTH": (1.0, 1.2),
            "PRIOR_WEIGHT": (1.0, 4.0),
            "PRIOR_VARIANCE": (0.0025, 0.04),
        },
        "coordinates": {"_PARAM_WEIGHT": (0.2, 0.6, 1.0), "_FEATURE_WEIGHT": (1.0, 2.0, 3.0)},
        "transfer_model": {
            "_TREES": (50,),
            "_LEAF": (1, 5),
            "_SHARE": (0.3, 1.0),
            "_MAX_TRIALS": (1000, 4000),
        },
        "source_trials": {
            "_MAX_SLOWNESS": (1.0,),
        },
    },
    "evolution": {},
}
"""Values tried per constant of each model that a sampler uses."""
BUDGETS = (8, 16, 32)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="file for the results")
    arguments.add_argument("--sampler", default="transfer", choices=ARGUMENTS)
    arguments.add_argument("--seeds", type=int, default=6)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--only", nargs="*", help="arguments and constants to change (default: all)")
    arguments.add_argument("--foreign", type=Path, help="folder of landscapes of other kernels")
    given = arguments.parse_args()
    study = Study(given.seeds, given.batch, given.foreign)
    results = []
    for label, sampler, constants in settings(given.sampler, given.only):
        began = time.process_time()
        with changed(constants):
            result = {"setting": label, **study.run(sampler)}
        result["cpu seconds"] = round(time.process_time() - began, 1)
        results.append(result)
        print(json.dumps(result), flush=True)
    given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def settings(name: str, only: list[str] | None) -> Iterator[tuple[str, type[Sampler], dict[tuple[str, str], object]]]:
    """Yield a label, the sampler and the constants of each setting, the defaults first."""
    sampler = registry.sampler(name)
    yield "as it is", sampler, {}
    for argument, values in ARGUMENTS[name].items():
        if only is None or argument in only:
            for value in values:
                yield f"{argument} = {value}", with_argument(sampler, argument, value), {}
    for module, constants in CONSTANTS[name].items():
        for constant, values in constants.items():
            if only is None or constant in only:
                for value in values:
                    yield f"{module}.{constant} = {value}", sampler, {(module, constant): value}


def with_argument(sampler: type[Sampler], argument: str, value: object) -> type[Sampler]:
    """Return a subclass of the sampler with another default for one argument."""

    class Changed(sampler):
        def __init__(self, search: Search) -> None:
            super().__init__(search, **{argument: value})

    return Changed


class changed:  # noqa: N801
    """Context in which constants of modules have other values."""

    def __init__(self, values):
        modules = {m: importlib.import_module(f"gemmtune.engine.search.models.{m}") for m, _ in values}
        self._values = {(modules[m], n): v for (m, n), v in values.items()}

    def __enter__(self):
        self._kept = {(module, name): getattr(module, name) for module, name in self._values}
        self._set(self._values)

    def __exit__(self, *error):
        self._set(self._kept)

    def _set(self, values):
        for (module, name), value in values.items():
            setattr(module, name, value)


class Study:
    def __init__(self, seeds: int, batch: int, foreign: Path | None) -> None:
        self._seeds, self._batch = range(seeds), batch
        chosen = [landscape for landscape in h200() if landscape.name in CHOSEN_ON]
        self._bare = [LandscapeSearch(landscape, cold=True) for landscape in chosen]
        self._tasks = [LandscapeSearch(landscape) for landscape in chosen]
        self._records = [task.as_source() for task in self._tasks]
        files = foreign_files(foreign) if foreign else {}
        self._foreign = {name: ForeignTask(path) for name, path in files.items() if name in CHOSEN_ON}

    def run(self, sampler: type[Sampler]) -> dict[str, object]:
        """Return the mean of optimum over best within 8, 16 and 32 evaluations, and P of the foreign kernels."""
        results: dict[str, object] = {
            "without seeds": self._mean(sampler, self._bare),
            "with seeds": self._mean(sampler, self._tasks),
        }
        if sampler.learns:
            results["warm"] = self._mean(sampler, self._tasks, warm=True)
        for name, task in self._foreign.items():
            found = task.score([task.run(sampler, seed, self._batch) for seed in self._seeds])
            results[name] = round(found.value, 3)
        return results

    def _mean(self, sampler: type[Sampler], tasks: list[LandscapeSearch], *, warm: bool = False) -> list[float]:
        found = []
        for number, task in enumerate(tasks):
            history = [source for i, source in enumerate(self._records) if i != number] if warm else []
            for seed in self._seeds:
                thin = thinned(task, seed, cold=not task.seeds)
                trials = thin.search(sampler, BUDGETS[-1], seed=seed, batch=self._batch, history=history)
                found.append(fractions(thin, trials, BUDGETS))
        return [round(float(mean), 4) for mean in np.mean(found, axis=0)]


if __name__ == "__main__":
    main()
