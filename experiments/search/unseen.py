"""Search spaces that nobody described: recorded problems without space, seeds and features. Usage: unseen.py.

Every repetition draws problems of 22 recorded ones (ten that ship, twelve of experiments/campaign-100), and searches
them in a drawn order as `gemmtune compare` does: a sampler that learns is given the searches before.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from landscapes import h200

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.search import Search, SourceTask
from gemmtune.engine.scheduling.landscape_search import LandscapeSearch
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.sampler import Sampler
from gemmtune.engine.store.landscapes.landscape_file import read_landscapes

TRUTHS = Path(__file__).parents[1] / "campaign-100" / "truth"
PROBLEMS, CONFIGS = 11, 1582
"""Size of a drawn campaign, and of the set of configs that its problems share."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samplers", nargs="+", default=["tpe", "evolution", "transfer"], help="or MODULE:CLASS")
    arguments.add_argument("--scenes", nargs="+", default=["shared", "padded", "mixed", "disguised"], choices=SCENES)
    arguments.add_argument("--budgets", nargs="+", type=int, default=[16, 32, 64])
    arguments.add_argument("--seeds", type=int, default=10)
    arguments.add_argument("--first-seed", type=int, default=0)
    arguments.add_argument("--batch", type=int, default=1)
    arguments.add_argument("--json", type=Path, help="file to append results to, one per line")
    given = arguments.parse_args()
    for scene in given.scenes:
        for name in given.samplers:
            result = measure(scene, name, given)
            print(line(result), flush=True)
            if given.json:
                with given.json.open("a", encoding="utf-8") as out:
                    out.write(json.dumps(result) + "\n")


def line(result: dict[str, object]) -> str:
    found = "  ".join(f"{b}: {m:.4f} ± {e:.4f} (worst {w:.3f})" for b, (m, e, w) in result["found"].items())
    return f"{result['scene']:10} {result['sampler']:34} {found}  {result['cpu ms a config']} ms"


def measure(scene: str, name: str, given: argparse.Namespace) -> dict[str, object]:
    """Return mean, half of the 95 % interval over the repetitions, and worst problem of optimum over best found."""
    kind = sampler(name)
    found: dict[int, list[list[float]]] = {budget: [] for budget in given.budgets}
    asked, spent = 0, 0.0
    for seed in range(given.first_seed, given.first_seed + given.seeds):
        tasks = SCENES[scene](random.Random(f"{scene}/{seed}"), given)
        for budget in given.budgets:
            before: list[SourceTask] = []
            fractions = []
            for task, history in tasks:
                began = time.process_time()
                known = before if history is None else history
                trials = task.search(kind, budget, seed=seed, batch=given.batch, history=known)
                spent += time.process_time() - began
                asked += budget
                if history is None:
                    before.append(task.as_source(trials))
                best = min((t.score for t in trials if t.score is not None), default=math.inf)
                fractions.append(task.landscape.optimum_ns / best)
            found[budget].append(fractions)
    summary = {}
    for budget, values in found.items():
        means = np.array([np.mean(v) for v in values])
        half = 1.96 * float(means.std(ddof=1)) / len(means) ** 0.5 if len(means) > 1 else math.nan
        summary[budget] = (round(float(means.mean()), 4), round(half, 4), round(min(map(min, values)), 3))
    cost = round(1e3 * spent / asked, 2)
    return {"scene": scene, "sampler": name, "batch": given.batch, "found": summary, "cpu ms a config": cost}


def sampler(name: str) -> type[Sampler]:
    if ":" not in name:
        return registry.sampler(name)
    module, _, rest = name.partition(":")
    kind, _, arguments = rest.partition("(")
    found = getattr(importlib.import_module(module), kind)
    if not arguments:
        return found
    changed = eval(f"dict({arguments}")

    class Changed(found):
        def __init__(self, search: Search) -> None:
            super().__init__(search, **changed)

    return Changed


@cache
def recorded() -> tuple[Landscape, ...]:
    """Return the ten problems that ship, then the twelve swept ones."""
    return *h200(), *(x for path in sorted(TRUTHS.glob("*.gz")) for x in read_landscapes(path))


def bare(landscape: Landscape, configs: Sequence[Config] | None = None) -> LandscapeSearch:
    """Return a search that knows problem and parameters alone."""
    points = landscape.points if configs is None else {c: landscape.points[c] for c in configs}
    params = tuple(p for p in (narrowed(p, points) for p in landscape.params))
    return LandscapeSearch(replace(landscape, points=points, params=params, context={}))


def narrowed(param: Param, configs) -> Param:
    values = {config[param.name] for config in configs}
    return replace(param, values=tuple(v for v in param.values if v in values))


Scene = list[tuple[LandscapeSearch, Sequence[SourceTask] | None]]


def shared(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return eleven problems of m from 256 on, with one set of configs that all have."""
    large = [x for x in recorded() if len(x.points) >= 2904]
    fewest = min(large, key=lambda x: len(x.points))
    common = [c for c in fewest.points if all(c in x.points for x in large)]
    configs = [common[i] for i in sorted(draw.sample(range(len(common)), CONFIGS))]
    return [(bare(x, configs), None) for x in draw.sample(large, len(large))]


def padded(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return eleven problems of any m with one set of configs, where a small m makes large tiles slow."""
    configs = [c for c in max(recorded(), key=lambda x: len(x.points)).points if c["GROUP_M"] == 8]
    chosen = draw.sample(range(len(recorded())), PROBLEMS)
    kept = [configs[i] for i in sorted(draw.sample(range(len(configs)), CONFIGS))]
    return [(bare(filled(number), kept), None) for number in chosen]


@cache
def filled(number: int) -> Landscape:
    """Return a problem with times for tiles of more rows than were recorded: 15 % more per doubling of the rows."""
    problem, largest = recorded()[number], max(recorded(), key=lambda x: len(x.points))
    rows = max(c["BLOCK_M"] for c in problem.points)
    points = {}
    for config in (c for c in largest.points if c["GROUP_M"] == 8):
        factor = 1.15 ** math.log2(max(1, config["BLOCK_M"] / rows))
        known = Config({**config, "BLOCK_M": min(rows, config["BLOCK_M"])})
        while known not in problem.points and known["num_warps"] > 1:  # 5 % more per doubling of the warps
            known, factor = Config({**known, "num_warps": known["num_warps"] // 2}), 1.05 * factor
        point = problem.points.get(known) or slowest(problem, known)
        points[config] = replace(point, config=config, time_ns=factor * point.time_ns)
    return replace(problem, points=points, params=largest.params)


def slowest(problem: Landscape, config: Config) -> Point:
    tile = [p for c, p in problem.points.items() if all(c[n] == config[n] for n in ("BLOCK_M", "BLOCK_N"))]
    return max(tile, key=lambda point: point.time_ns)


def mixed(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return eleven problems of any m, with the configs that each was recorded with."""
    return [(bare(x), None) for x in draw.sample(recorded(), PROBLEMS)]


def disguised(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return eleven problems with fewer configs, one parameter fixed, and the values of another shuffled."""
    chosen = draw.sample(recorded(), PROBLEMS)
    names = [p.name for p in chosen[0].params]
    fixed = draw.choice(["GROUP_M", "num_stages", "num_warps", "BLOCK_K"])
    shuffled = draw.choice([n for n in names if n not in (fixed, "GROUP_M")])
    kept = {name: draw.choice([4, 8]) for name in ("GROUP_M", "num_warps")} | {"num_stages": draw.choice([2, 3, 4])}
    kept["BLOCK_K"] = draw.choice([32, 64, 128])
    values = sorted({c[shuffled] for x in chosen for c in x.points})
    labels = dict(zip(values, draw.sample(values, len(values)), strict=True))
    share = draw.uniform(0.3, 0.9)
    tasks = []
    for x in chosen:
        fits = [c for c in x.points if c[fixed] == (8 if fixed == "GROUP_M" else kept[fixed])]
        if len(fits) < 60:
            fits = list(x.points)
        fits = [c for c in fits if len(fits) < 120 or draw.random() < share]
        points = {}
        for c in fits:
            new = Config({**c, shuffled: labels[c[shuffled]]})
            points[new] = replace(x.points[c], config=new)
        params = tuple(replace(p, values=tuple(sorted({c[p.name] for c in points}))) for p in x.params)
        tasks.append((LandscapeSearch(replace(x, points=points, params=params, context={})), None))
    return tasks


def others(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return the ten problems that ship, with features and seeds, and the records of the nine others."""
    return [(described(n), [s for i, s in enumerate(records()) if i != n]) for n in range(10)]


def truths(draw: random.Random, given: argparse.Namespace) -> Scene:
    """Return the twelve swept problems, with features and seeds, and the ten that ship as history."""
    return [(described(number), records()) for number in range(10, len(recorded()))]


@cache
def described(number: int) -> LandscapeSearch:
    """Return a search of a recorded problem with features and the space's seeds."""
    return LandscapeSearch(recorded()[number])


@cache
def records() -> tuple[SourceTask, ...]:
    """Return all that is recorded of the ten problems that ship."""
    tasks = [described(number) for number in range(10)]
    return tuple(task.as_source() for task in tasks)


SCENES = {f.__name__: f for f in (shared, padded, mixed, disguised, others, truths)}


if __name__ == "__main__":
    main()
