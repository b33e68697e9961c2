"""Count the builds until a search is near the optimum. Usage: builds.py [--samplers transfer] [--seeds 6].

Problems: the ten that ship, each with the records of the nine others; and the twelve that experiments/campaign-100
swept, with the ten as history, as its campaign has them. `--shipped` adds the searches that ship to each history. A
search may be compared with copies of the sampler that have other arguments, `MODULE:CLASS(argument=value)`.
"""

from __future__ import annotations

import argparse
import random
from functools import cache

import numpy as np
from landscapes import fractions, thinned
from unseen import SCENES, sampler

from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes, shipped_searches

BUDGETS = (4, 8, 12, 16, 20, 24, 32)
"""Builds after which a search is judged."""
NEAR = 0.997
"""Fraction of the optimum to reach in the mean."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samplers", nargs="+", default=["transfer"])
    arguments.add_argument("--scenes", nargs="+", default=["others", "truths"], choices=SCENES)
    arguments.add_argument("--seeds", type=int, default=6)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--thin", action="store_true", help="leave out 15 %% of the configs")
    arguments.add_argument("--shipped", action="store_true", help="add the shipped searches to each history")
    given = arguments.parse_args()
    for scene in given.scenes:
        for name in given.samplers:
            found = np.array([one(scene, name, given, seed) for seed in range(given.seeds)])
            curves = np.array([[np.maximum.accumulate(x) for x in seed] for seed in found])
            at = curves[:, :, [budget - 1 for budget in BUDGETS]]
            near = np.flatnonzero(curves.mean(axis=(0, 1)) >= NEAR)
            needed = str(near[0] + 1) if near.size else f"more than {BUDGETS[-1]}"
            print(f"{scene}, {name}, batch {given.batch}: {needed} builds to {NEAR} in the mean")
            for budget, mean, worst in zip(BUDGETS, at.mean(axis=(0, 1)), at.mean(axis=0).min(axis=0), strict=True):
                print(f"  {budget:3} builds: mean {mean:.4f}, worst problem {worst:.3f}", flush=True)


def one(scene: str, name: str, given: argparse.Namespace, seed: int) -> list[list[float]]:
    """Return the fraction of the optimum after each build, per problem."""
    curves, shipped = [], shipped_sources() if given.shipped else ()
    for task, history in SCENES[scene](random.Random(f"{scene}/{seed}"), given):
        searched = thinned(task, seed) if given.thin else task
        known = (*(history or ()), *shipped)
        trials = searched.search(sampler(name), BUDGETS[-1], seed=seed, batch=given.batch, history=known)
        curves.append(fractions(searched, trials, range(1, BUDGETS[-1] + 1)))
    return curves


@cache
def shipped_sources() -> tuple[SourceTask, ...]:
    """Return what searches of `triton_mm` measured on other problems, from the files that ship."""
    files = shipped_searches("triton_mm")
    return tuple(LandscapeSearch(landscape).as_source() for file in files for landscape in read_landscapes(file))


if __name__ == "__main__":
    main()
