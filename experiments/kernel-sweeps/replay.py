"""Replay searches of the swept kernels, each with a guess learned from other kernels, and write replay.json.

A search has a tenth of its kernel's smaller sweep, at least 30 evaluations, as in run.py. Each repetition draws 80 % of
the configs, with all seeds, and tells the sampler times with 0.5 % of noise; what counts is the recorded time.
"""

import csv
import gzip
import json
import math
import random
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
"""Share of the sweeps that the guess is not learned from, and whether seeds go first beyond half of the budget."""


@cache
def cases() -> list[tuple[guess.Sweep, str, tuple[Config, ...]]]:
    """Return each sweep with its case's name and seeds."""
    with gzip.open(guess.SWEEPS, "rt", encoding="utf-8", newline="") as file:
        grouped = [list(of) for _, of in groupby(csv.DictReader(file), lambda line: (line["kernel"], line["case"]))]
    found = []
    for sweep, lines in zip(guess.sweeps(), grouped, strict=True):
        seeds = sorted((int(line["seed"]), Config.from_json(line["config"])) for line in lines if line["seed"])
        found.append((sweep, f"{sweep.kernel} {lines[0]['case']}", tuple(config for _, config in seeds)))
    return found


@cache
def forest_without(kernels: frozenset[str]) -> guess.Forest:
    return guess.fit([sweep for sweep in guess.sweeps() if sweep.kernel not in kernels])


def search(case, forest: guess.Forest | None, most: int, budget: int, seed: int) -> tuple[float, float]:
    """Return the best time found over the drawn optimum and over the best seed; all seeds go first up to `most`."""
    sweep, name, seeds = case
    times = dict(zip(sweep.configs, sweep.times_ns, strict=True))
    draw, drawn = random.Random(f"{seed}/{name}"), random.Random(f"{seed}/{sweep.kernel}/configs")
    kept = {config for config in times if drawn.random() < 0.8} | set(seeds)
    feasible = tuple(config for config in times if config in kept)
    told = {config: times[config] * math.exp(draw.gauss(0, 0.005)) for config in feasible}
    rows = guess.traits(sweep.configs, sweep.programs, sweep.least_bytes, 132)[[config in kept for config in times]]
    expected = Guess(forest(rows), rows[:, : guess.SHAPES]) if forest else None
    values = {n: {config[n] for config in feasible} for n in feasible[0]}
    texts = {n: any(isinstance(value, str) for value in of) for n, of in values.items()}
    params = [Param(n, tuple(sorted(of, key=str if texts[n] else None)), not texts[n]) for n, of in values.items()]
    first, own = seeds if len(seeds) <= most else (), own_seed(seed, name)
    sampler = TransferSampler(
        Search(tuple(params), feasible, seeds, budget, own, first=first, guess=lambda configs: expected)
    )
    asked: list[Config] = []
    while len(asked) < min(budget, len(feasible)):
        batch = sampler.ask(min(8, budget - len(asked)))
        ran = [(config, told[config]) for config in batch]
        sampler.tell([Trial(c, *((Status.OK, ns) if ns < math.inf else (Status.BUILD_FAILED, None))) for c, ns in ran])
        asked += batch
    best = min(times[config] for config in asked)
    return best / min(times[config] for config in feasible), best / min(times[config] for config in seeds)


def replay(job: tuple[str, int]) -> list[tuple[float, float]]:
    """Return what `search` returns, per case."""
    (without, all_first), found = ARMS[job[0]], []
    for kernel, group in groupby(cases(), lambda case: case[0].kernel):
        of = list(group)
        away = next(f for f in FAMILIES if kernel in f) if without == "family" else {kernel}
        forest = forest_without(frozenset(away)) if without else None
        budget = max(30, min(len(sweep.configs) for sweep, *_ in of) // 10)
        found += [search(case, forest, budget if all_first else budget // 2, budget, job[1]) for case in of]
    return found


def main() -> None:
    result = {}
    for arm in ARMS:
        with Pool() as pool:
            losses = np.array(pool.map(replay, [(arm, seed) for seed in range(8)], chunksize=1)) - 1
        loss, by_seed = losses[..., 0], losses[..., 0].mean(axis=1)  # losses are of shape (seeds, cases, 2)
        result[arm] = {
            "behind": round(float(loss.mean()), 4),
            "half of the interval": round(1.96 * float(by_seed.std(ddof=1)) / len(by_seed) ** 0.5, 4),
            "within 1 %": round(float((loss < 0.01).mean()), 3),
            "worst case": round(float(loss.mean(axis=0).max()), 3),
            "worst search": round(float(loss.max()), 3),
            "behind the best seed": round(float(losses[..., 1].mean(axis=0).max()), 4),
        }
        print(arm, result[arm], flush=True)
    Path(__file__).with_name("replay.json").write_text(json.dumps({"cases": len(cases()), **result}) + "\n")


if __name__ == "__main__":
    main()
