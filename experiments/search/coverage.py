"""Coverage of the 95 % intervals that `compare` prints. Usage: coverage.py [FILE ...] [--json result.json].

A pool of searches stands for all searches: its mean and its P are the truth. Studies of a few seeds are drawn from it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import gemmtune as gt
from gemmtune.engine.studies.comparison import compare
from gemmtune.engine.studies.intervals import mean_interval
from gemmtune.engine.studies.performance_score import PerformanceScore

AT = (16, 32, 64)
"""Evaluations after which the curves are looked at."""
FEW = 2
"""Draws of a curve per draw of P, which takes longer."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("landscapes", nargs="*", default="h200", help="as of gemmtune compare")
    arguments.add_argument("--samplers", nargs="+", default=["random", "evolution"])
    arguments.add_argument("--pool", type=int, default=200, help="searches per landscape that stand for all")
    arguments.add_argument("--draws", type=int, default=4000, help="studies per number of seeds")
    arguments.add_argument("--seeds", nargs="+", type=int, default=[5, 10, 20, 30])
    arguments.add_argument("--budget", type=int, default=AT[-1], help="P is looked at where its range ends by then")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    found: dict[str, dict[str, list[float]]] = {}
    for sampler in given.samplers:
        study = gt.replay(given.landscapes, sampler, budget=given.budget, seeds=given.pool, batch=8, apart=True)
        for seeds in given.seeds:
            shares = curves(study, seeds, given.draws)
            shares["P"] = scores(study, seeds, given.draws // FEW)
            for what, each in shares.items():
                found.setdefault(f"{sampler}, {seeds} seeds", {})[what] = each
                print(f"{sampler:10} {seeds:>3} seeds {what:14}", *(f"{share:.3f}" for share in each), flush=True)
    if given.json:
        kept = json.loads(given.json.read_text()) if given.json.exists() else {}
        given.json.write_text(json.dumps({**kept, "coverage": found}, indent=1) + "\n")


def curves(study: gt.Study, seeds: int, draws: int) -> dict[str, list[float]]:
    """Return the share of intervals that hold the truth: of the mean over the landscapes, then of each landscape.

    An interval that fewer than one study in fifty has is left out.
    """
    [replays] = study.found.values()
    optima = np.array([landscape.optimum_ns for landscape in study.landscapes])
    drawn = np.random.default_rng(seeds).integers(len(replays), size=(seeds, draws))
    shares = {}
    for budget in AT:
        best = [[min((t.score or np.inf for t in trials[:budget]), default=np.inf) for trials in x] for x in replays]
        fractions = optima / np.array(best)
        columns = [(fractions.mean(axis=1), len(optima)), *((column, 1) for column in fractions.T)]
        held = [_share(column[drawn], float(column.mean()), over) for column, over in columns]
        shares[f"after {budget}"] = [round(share, 4) for share in held if not np.isnan(share)]
    return shares


def scores(study: gt.Study, seeds: int, draws: int) -> list[float]:
    """Return the share of intervals of P that hold the P of all searches, per landscape whose P fits the budget."""
    [replays], rng, found = study.found.values(), np.random.default_rng(seeds), []
    for number, landscape in enumerate(study.landscapes):
        scorer = PerformanceScore(landscape)
        if scorer.evaluations is None or scorer.evaluations[1] > study.budget:
            continue
        truth = scorer.score([replay[number] for replay in replays]) or 0.0
        held = []
        for _ in range(draws):
            drawn = [[replays[i][number]] for i in rng.integers(len(replays), size=seeds)]
            score = compare([landscape], {"": drawn}, study.budget).curve("").score
            if score and score.low is not None and score.high is not None:
                held.append(score.low <= truth <= score.high)
        found += [round(float(np.mean(held)), 4)] if len(held) > draws / 50 else []
    return found


def _share(values: NDArray[np.float64], truth: float, over: int) -> float:
    low, high = mean_interval(values, over)
    printed = ~np.isnan(low)
    return float(np.mean((low <= truth) & (truth <= high), where=printed)) if printed.mean() > 0.02 else np.nan


if __name__ == "__main__":
    main()
