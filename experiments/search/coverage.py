"""Coverage of the 95 % intervals that `compare` prints. Usage: coverage.py [--json result.json].

A pool of searches stands for all searches: its mean and its P are the truth. Studies of a few seeds are drawn from it,
and compared as a user's are.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from landscapes import h200

import gemmtune as gt
from gemmtune.engine.studies.comparison import BUDGETS, Curve, compare
from gemmtune.engine.studies.intervals import LEAST_SEEDS
from gemmtune.engine.studies.performance_score import PerformanceScore
from gemmtune.engine.studies.sampler_study import Replay

BUDGET = 64
AT = [budget for budget in BUDGETS if budget <= BUDGET]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--samplers", nargs="+", default=["random", "evolution"])
    arguments.add_argument("--pool", type=int, default=300, help="searches per landscape that stand for all")
    arguments.add_argument("--draws", type=int, default=400, help="studies per number of seeds")
    arguments.add_argument("--seeds", nargs="+", type=int, default=[5, 10, 20])
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    for sampler in given.samplers:
        study = gt.replay(h200(), sampler, budget=BUDGET, seeds=given.pool, batch=8, apart=True)
        pool = study.found[sampler]
        found[sampler] = {str(seeds): coverage(study.landscapes, pool, seeds, given.draws) for seeds in given.seeds}
        for seeds, shares in found[sampler].items():
            for what, each in shares.items():
                ends = f"{min(each):.3f} {np.mean(each):.3f} {max(each):.3f}"
                print(f"{sampler:10} {seeds:>3} seeds {what:28} least, mean, most {ends}", flush=True)
    if given.json:
        kept = json.loads(given.json.read_text()) if given.json.exists() else {}
        given.json.write_text(json.dumps({**kept, "coverage": found}, indent=1) + "\n")


def coverage(
    landscapes: Sequence[gt.Landscape], pool: Sequence[Replay], seeds: int, draws: int
) -> dict[str, list[float]]:
    """Return the share of printed intervals that hold the truth, per kind: one for each that is printed often."""
    rng = np.random.default_rng(seeds)
    truth = truths(landscapes, pool)
    printed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for _ in range(draws):
        drawn = [pool[i] for i in rng.integers(len(pool), size=seeds)]
        for curve in compare(landscapes, {"": drawn}, BUDGET).curves:
            scope = "one landscape" if curve.landscape else "all landscapes"
            for what, holds in covered(curve, truth).items():
                printed[f"{what}, {scope}", curve.landscape].append(holds)
    shares: dict[str, list[float]] = defaultdict(list)
    for (what, _), hits in sorted(printed.items()):
        if len(hits) >= draws / 4:
            shares[what].append(round(float(np.mean(hits)), 4))
    return shares


def truths(landscapes: Sequence[gt.Landscape], pool: Sequence[Replay]) -> dict[tuple[str, str], float]:
    """Return the means and P of the whole pool, by kind of interval and landscape."""
    few = LEAST_SEEDS - 1  # studies without intervals, which take long of many seeds
    parts = [compare(landscapes, {"": pool[i : i + few]}, BUDGET).curves for i in range(0, len(pool) - few + 1, few)]
    found = {}
    for curves in zip(*parts, strict=True):
        means = np.mean([curve.mean for curve in curves], axis=0)
        found |= {(f"after {budget}", curves[0].landscape): float(means[budget - 1]) for budget in AT}
    scorers = [PerformanceScore(landscape) for landscape in landscapes]
    for number, (landscape, scorer) in enumerate(zip(landscapes, scorers, strict=True)):
        if scorer.evaluations and scorer.evaluations[1] <= BUDGET:
            found["P", landscape.name] = scorer.score([replay[number] for replay in pool])
    return found | {("P", ""): float(np.mean([value for (what, _), value in found.items() if what == "P"]))}


def covered(drawn: Curve, truth: Mapping[tuple[str, str], float]) -> dict[str, bool]:
    """Return whether each printed interval of a curve holds the truth."""
    ends = {f"after {budget}": (drawn.low[budget - 1], drawn.high[budget - 1]) for budget in AT}
    ends["P"] = (drawn.score.low, drawn.score.high) if drawn.score else (None, None)
    held = {what: truth[what, drawn.landscape] for what, (low, _) in ends.items() if low is not None}
    return {what: ends[what][0] <= value <= ends[what][1] for what, value in held.items()}


if __name__ == "__main__":
    main()
