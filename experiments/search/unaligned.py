"""Sweep num_stages of Inductor's list where rows of A or B are no multiple of 16 bytes. Needs a GPU.

    python experiments/search/unaligned.py --out FOLDER [--minutes 4] [--recorded]

Every config of the list is measured with one to five stages, and others are drawn up to 200 in all. Per problem it
prints the time of the best over the best of each number of stages, for tiles of 128 along k and for all others. The
question comes from 1024x1280x3420, which `--recorded` takes from the recorded landscapes.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

import gemmtune as gt
from gemmtune.engine.records.config import Config
from gemmtune.engine.store.database import Database

PROBLEMS = (
    "512x4096x1366:bf16:nt",  # rows of 2,732 bytes
    "2048x2048x2050:bf16:nt",  # 4,100
    "1024x1000x4095:bf16:nt",  # 8,190: no element pair is aligned in every row
    "128x4096x3004:bf16:nt",  # 6,008, as 3420 has 6,840: multiples of 8
    "1024x3004x2048:bf16:nn",  # rows of B
    "3004x1024x2048:bf16:tn",  # rows of A
    "1024x1280x3420:fp16:nt",
)
RECORDED = "1024x1280x3420:bf16:nt"
STAGES, DEEP = (1, 2, 3, 4, 5), 128


class EveryStage(gt.Sampler):
    """Asks for the seeds with each number of stages, then for all other configs in a drawn order."""

    def __init__(self, search) -> None:
        super().__init__(search)
        wanted = [Config({**seed, "num_stages": stages}) for seed in search.seeds for stages in STAGES]
        feasible = set(search.feasible)
        listed = list(dict.fromkeys(config for config in wanted if config in feasible))
        others = sorted(feasible - set(listed), key=lambda config: config.digest)
        self._queue = [*listed, *random.Random(0).sample(others, len(others))]

    def ask(self, count: int) -> list[Config]:
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    def tell(self, trials) -> None:
        """Learn nothing."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for the database and the results")
    parser.add_argument("--minutes", type=float, default=4, help="time of the sweeps")
    parser.add_argument("--recorded", action="store_true", help="take the recorded problem instead, without a GPU")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    problems, backend = ((RECORDED,), gt.landscapes()) if given.recorded else (PROBLEMS, "auto")
    database, limit = given.out / "measurements.db", 60 * given.minutes
    gt.tune(problems, sampler=EveryStage, budget=200, seconds=limit, database=database, backend=backend)
    found = {}
    with Database.open(database, read_only=True) as store:
        for task in store.tasks():
            if task.space == "triton_mm":
                found[task.problem.name] = shares(store.measurements(task))
    (given.out / "unaligned.json").write_text(json.dumps(found, indent=1) + "\n")
    print("| problem | configs | tiles of k | " + " | ".join(f"{stages} stages" for stages in STAGES) + " |")
    for name, its in found.items():
        for tiles in ("128", "others"):
            row = [f"{its[tiles].get(stages, float('nan')):.3f}" for stages in STAGES]
            print(f"| {name} | {its['configs']} | {tiles} | {' | '.join(row)} |")


def shares(measurements) -> dict:
    """Return the best time over the best of each number of stages, by tiles along k."""
    times = {m.config: m.estimate.time_ns for m in measurements if m.estimate}
    best: dict[str, dict[int, float]] = {tiles: defaultdict(lambda: float("inf")) for tiles in ("128", "others")}
    for config, time_ns in times.items():
        its = best["128" if config["BLOCK_K"] == DEEP else "others"]
        its[config["num_stages"]] = min(its[config["num_stages"]], time_ns)
    fastest = min(times.values())
    return {
        "configs": len(times),
        **{tiles: {stages: fastest / its[stages] for stages in sorted(its)} for tiles, its in best.items()},
    }


if __name__ == "__main__":
    main()
