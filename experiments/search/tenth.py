"""Search with a tenth of the configs. Usage: tenth.py [--samplers transfer evolution] [--seeds 12] [--own FOLDER].

A campaign has four recorded problems with a drawn grid of configs, without space, seeds and features. FOLDER is one
that experiments/own-kernel/run.py wrote, with the sweeps of both kernels; they are searched in both orders of cases.
Differences are paired, from the first sampler.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from unseen import narrowed, recorded, sampler, search

from gemmtune.engine.api.recording import landscape_from
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.search import SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.kinds import expand_workloads
from gemmtune.engine.store.database import Database

EXAMPLES = Path(__file__).parents[2] / "docs/examples/own_kernel"
CASES, FEWEST, MOST = 4, 100, 600


def small(seed: int) -> list[LandscapeSearch]:
    """Return four problems that nobody described, with a small grid of configs."""
    draw = random.Random(f"small/{seed}")
    while True:
        chosen = draw.sample(recorded(), CASES)
        keep = {"GROUP_M": {8}}
        for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages", "num_warps"):
            values = sorted({c[name] for x in chosen for c in x.points})
            keep[name] = set(draw.sample(values, min(draw.randint(2, 5), len(values))))
        tasks = [gridded(x, keep) for x in chosen]
        if all(FEWEST <= len(task.feasible) <= MOST for task in tasks):
            return tasks


def gridded(x: Landscape, keep: dict[str, set[object]]) -> LandscapeSearch:
    points = {c: p for c, p in x.points.items() if all(c[n] in v for n, v in keep.items())}
    return LandscapeSearch(replace(x, points=points, params=tuple(narrowed(p, points) for p in x.params), context={}))


def own(folder: Path, kernel: str) -> list[LandscapeSearch]:
    """Return the cases of an own kernel, as they were swept."""
    space, tasks = registry.space("triton_kernel"), []
    expand_workloads(f"triton:{EXAMPLES / kernel}")
    with Database.open(str(folder / "measurements.db"), read_only=True) as store:
        for task in store.tasks():
            if task.space == "triton_kernel" and task.problem.kernel == kernel.partition(":")[2]:
                found = {m.config: m for m in store.measurements(task)}
                order = [c for c in space.points(task) if c in found]
                tasks.append(LandscapeSearch(landscape_from(task, space, order, found)))
    return tasks


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samplers", nargs="+", default=["transfer"])
    arguments.add_argument("--seeds", type=int, default=12)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--batch", type=int, default=8)
    arguments.add_argument("--share", type=float, nargs="+", default=[0.1], help="budget, as shares of the configs")
    arguments.add_argument("--apart", action="store_true", help="withhold the searches before")
    arguments.add_argument("--no-small", action="store_true", help="search the own kernels alone")
    arguments.add_argument("--own", type=Path, nargs="*", default=[])
    given = arguments.parse_args()
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    bases: dict[object, np.ndarray] = {}
    scenes = {} if given.no_small else {"small": [small(seed) for seed in seeds]}
    for folder in given.own:
        for kernel in ("softmax.py:Softmax", "int4_gemm.py:Int4Gemm"):
            tasks = own(folder, kernel)
            scenes[f"{folder.parent.name}/{kernel.partition(':')[2]}"] = [tasks] * given.seeds
            scenes[f"{folder.parent.name}/{kernel.partition(':')[2]} reversed"] = [tasks[::-1]] * given.seeds
    for scene, campaigns in scenes.items():
        for name in given.samplers:
            for share in given.share:
                began = time.process_time()
                found = np.array([one(t, name, s, share, given) for t, s in zip(campaigns, seeds, strict=True)])
                near = (found >= 0.99).mean(axis=0)
                base = bases.setdefault((scene, share), found)
                apart = [(x - y).mean(axis=1) for x, y in ((found, base), (found >= 0.99, 1.0 * (base >= 0.99)))]
                gains = [f"{x.mean():+.4f} ± {x.std(ddof=1) / len(x) ** 0.5:.4f}" for x in apart]
                error = found.mean(axis=1).std(ddof=1) / len(found) ** 0.5
                print(
                    f"{scene:24} {name:20} {share:4}: {found.mean():.4f} ± {error:.4f}, within 1 %: {near.mean():.3f}",
                    *gains,
                    "per case",
                    *(f"{m:.3f}/{n:.2f}" for m, n in zip(found.mean(axis=0), near, strict=True)),
                    f"{time.process_time() - began:.0f} s",
                    flush=True,
                )


def one(tasks: Sequence[LandscapeSearch], name: str, seed: int, share: float, given: argparse.Namespace) -> list[float]:
    """Return optimum over best found of one search per task, in order."""
    before: list[SourceTask] = []
    found = []
    for task in tasks:
        budget = math.ceil(share * len(task.feasible))
        trials = search(task, sampler(name), budget, seed, given.batch, before)
        if not given.apart:
            before.append(task.as_source(trials))
        best = min((t.score for t in trials if t.score is not None), default=math.inf)
        found.append(task.landscape.optimum_ns / best)
    return found


if __name__ == "__main__":
    main()
