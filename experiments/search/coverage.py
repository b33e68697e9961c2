"""Coverage of the 95 % intervals that `compare` prints. Usage: coverage.py [--json result.json].

A pool of searches stands for all searches: its mean and its P are the truth. Studies of a few seeds are drawn from it,
and compared as a user's are.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from landscapes import h200

import gemmtune as gt
from gemmtune.engine.studies.comparison import BUDGETS, Curve, compare
from gemmtune.engine.studies.sampler_study import Replay

BUDGET = 64


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
    truth = {curve.landscape: curve for curve in compare(landscapes, {"": pool}, BUDGET).curves}
    printed: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for _ in range(draws):
        drawn = [pool[i] for i in rng.integers(len(pool), size=seeds)]
        for curve in compare(landscapes, {"": drawn}, BUDGET).curves:
            scope = "one landscape" if curve.landscape else "all landscapes"
            for what, holds in covered(curve, truth[curve.landscape]).items():
                printed[f"{what}, {scope}", curve.landscape].append(holds)
    shares: dict[str, list[float]] = defaultdict(list)
    for (what, _), hits in sorted(printed.items()):
        if len(hits) >= draws / 4:
            shares[what].append(round(float(np.mean(hits)), 4))
    return shares


def covered(drawn: Curve, truth: Curve) -> dict[str, bool]:
    """Return whether each printed interval of a curve holds the truth."""
    ends = {f"after {b}": (drawn.low[b - 1], truth.mean[b - 1], drawn.high[b - 1]) for b in BUDGETS if b <= BUDGET}
    if drawn.score and truth.score:
        ends["P"] = drawn.score.low, truth.score.value, drawn.score.high
    return {what: low <= held <= high for what, (low, held, high) in ends.items() if low is not None}


if __name__ == "__main__":
    main()
