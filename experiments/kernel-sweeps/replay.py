"""Replay searches of the swept kernels, each with a guess that was learned from the other kernels.

    python experiments/kernel-sweeps/replay.py [--seeds 8] [--budget-share 0.1]

A search has a tenth of its kernel's smaller sweep, at least 30 evaluations, as in run.py. Each repetition draws 80 % of
the configs, with all seeds, and tells the sampler times with 0.5 % of noise; what counts is the recorded time.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import random
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from multiprocessing import Pool
from pathlib import Path

import numpy as np

from gemmtune.engine.records.config import Config, Param
from gemmtune.engine.records.measurement import Status, Trial
from gemmtune.engine.records.search import Guess, Search
from gemmtune.engine.scheduling.tuner import own_seed
from gemmtune.engine.search.samplers.transfer import TransferSampler
from gemmtune.spaces.triton import guess

FAMILIES = (
    {"Int4Gemm", "Int8Gemm", "Fp8BlockGemm", "Gemm", "GroupedSwiglu"},
    {"ChunkOutput", "ChunkState", "ChunkedScan", "FlashAttention"},
    {"LayerNormForward", "LayerNormGradient", "L2NormForward", "CrossEntropyInPlace", "RotaryEmbedding"},
)
ARMS = {
    "no guess, all seeds first": (None, True),
    "no guess": (None, False),
    "guess of other kernels, all seeds first": ("kernel", True),
    "guess of other kernels": ("kernel", False),
    "guess of other families": ("family", False),
}
"""What the guess is not learned from, and whether all seeds go first where they take over half of the budget."""
LEAST, SHARE, KEPT, NOISE = 30, 0.1, 0.8, 0.005


class Case:
    """A sweep with the names, seeds and sizes of its case."""

    def __init__(self, sweep: guess.Sweep, case: str, seeds: Sequence[Config]) -> None:
        self.sweep, self.kernel, self.name, self.seeds = sweep, sweep.kernel, f"{sweep.kernel} {case}", tuple(seeds)
        self.times = dict(zip(sweep.configs, sweep.times_ns, strict=True))
        self.traits = guess.traits(sweep.configs, sweep.programs, sweep.least_bytes, 132)
        self.number = {config: number for number, config in enumerate(sweep.configs)}

    def search(self, forest: guess.Forest | None, most: int, budget: int, seed: int) -> tuple[float, float]:
        """Return the recorded time of the best config found over the drawn optimum, and over the best seed.

        All seeds go first if they are `most` at most.
        """
        draw = random.Random(f"{seed}/{self.name}")
        drawn = random.Random(f"{seed}/{self.kernel}/configs")
        kept = {config for config in self.times if drawn.random() < KEPT} | set(self.seeds)
        feasible = tuple(config for config in self.times if config in kept)
        told = {config: self.times[config] * math.exp(draw.gauss(0, NOISE)) for config in feasible}

        def of_others(configs: Sequence[Config]) -> Guess | None:
            if forest is None:
                return None
            traits = self.traits[[self.number[config] for config in configs]]
            return Guess(forest(traits), traits[:, : guess.SHAPES])

        sampler = TransferSampler(
            Search(
                params=params_of(feasible),
                feasible=feasible,
                seeds=self.seeds,
                first=self.seeds if len(self.seeds) <= most else (),
                budget=budget,
                seed=own_seed(seed, self.name),
                guess=of_others,
            )
        )
        asked: list[Config] = []
        while len(asked) < min(budget, len(feasible)):
            batch = sampler.ask(min(8, budget - len(asked)))
            sampler.tell([trial(config, told[config]) for config in batch])
            asked += batch
        best = min(self.times[config] for config in asked)
        return best / min(map(self.times.__getitem__, feasible)), best / min(map(self.times.__getitem__, self.seeds))


def trial(config: Config, time_ns: float) -> Trial:
    return Trial(config, Status.OK, time_ns) if time_ns < math.inf else Trial(config, Status.BUILD_FAILED, None)


def params_of(configs: Sequence[Config]) -> tuple[Param, ...]:
    """Return the parameters with the values that occur, as the space lists them."""
    found = []
    for name in configs[0]:
        values = {config[name] for config in configs}
        texts = any(isinstance(value, str) for value in values)
        found.append(Param(name, tuple(sorted(values, key=str if texts else None)), ordered=not texts))
    return tuple(found)


@cache
def cases() -> list[Case]:
    with gzip.open(guess.SWEEPS, "rt", encoding="utf-8", newline="") as file:
        lines = [list(of) for _, of in groupby(csv.DictReader(file), lambda line: (line["kernel"], line["case"]))]
    found = []
    for sweep, of in zip(guess.sweeps(), lines, strict=True):
        seeds = sorted((int(line["seed"]), Config.from_json(line["config"])) for line in of if line["seed"])
        found.append(Case(sweep, of[0]["case"], [config for _, config in seeds]))
    return found


@cache
def forest_without(kernels: frozenset[str]) -> guess.Forest:
    return guess.fit([sweep for sweep in guess.sweeps() if sweep.kernel not in kernels])


def replay(job: tuple[str, int, float]) -> list[tuple[float, float]]:
    """Return what `Case.search` returns, per case."""
    arm, seed, share = job
    (without, all_first), found = ARMS[arm], []
    for kernel, group in groupby(cases(), lambda case: case.kernel):
        of = list(group)
        away = next(f for f in FAMILIES if kernel in f) if without == "family" else {kernel}
        forest = forest_without(frozenset(away)) if without else None
        budget = max(LEAST, int(min(len(case.times) for case in of) * share))
        found += [case.search(forest, budget if all_first else budget // 2, budget, seed) for case in of]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--budget-share", type=float, default=SHARE)
    given = parser.parse_args()
    result = {}
    print(f"{'arm':<40} behind the optimum  within 1 %  worst case  worst search  behind the best seed")
    for arm in ARMS:
        with Pool() as pool:
            jobs = [(arm, seed, given.budget_share) for seed in range(given.seeds)]
            losses = np.array(pool.map(replay, jobs, chunksize=1)) - 1  # (seeds, cases, 2)
        loss, by_seed, per_case = losses[..., 0], losses[..., 0].mean(axis=1), losses[..., 0].mean(axis=0)
        result[arm] = line = {
            "behind": round(float(loss.mean()), 4),
            "half of the interval": round(1.96 * float(by_seed.std(ddof=1)) / len(by_seed) ** 0.5, 4),
            "within 1 %": round(float((loss < 0.01).mean()), 3),
            "worst case": round(float(per_case.max()), 3),
            "worst search": round(float(loss.max()), 3),
            "behind the best seed": round(float(losses[..., 1].mean(axis=0).max()), 4),
        }
        print(
            f"{arm:<40} {line['behind']:>6.2%} ± {line['half of the interval']:.2%} {line['within 1 %']:>17.1%} "
            f"{line['worst case']:>11.1%} {line['worst search']:>13.1%} {line['behind the best seed']:>21.1%}"
        )
    names = [case.name for case in cases()]
    Path(__file__).with_name("replay.json").write_text(json.dumps({"cases": names, **result}, indent=1) + "\n")


if __name__ == "__main__":
    main()
