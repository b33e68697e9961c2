"""Compare the times of finals with those of the race, by space. Needs no GPU.

    python experiments/measurement/runs.py MEASUREMENTS.db --out runs.json

The race times single launches. Finals time kernels below 32 µs in runs of several launches. Per space and range of
times it prints how much longer a config took in the race, µs: the median of all finalists, and the extremes.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from gemmtune.engine.store.database import Database

BOUNDS_US = (4, 8, 16, 32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("database", type=Path, help="database of a campaign")
    parser.add_argument("--out", type=Path, help="file for the differences of all finalists")
    given = parser.parse_args()
    with Database.open(given.database, read_only=True) as store:
        race = {
            (task, measurement.config): measurement.estimate.time_ns
            for task in store.tasks()
            for measurement in store.measurements(task)
            if measurement.estimate
        }
        finalists = [finalist for final in store.all_finals() for finalist in final.finalists if finalist.estimate]
    found = defaultdict(list)
    for finalist in finalists:
        space, overlaps = finalist.task.space, finalist.config.get("use_pdl")
        us = finalist.estimate.time_ns / 1e3
        below = next((f"below {bound}" for bound in BOUNDS_US if us < bound), f"from {BOUNDS_US[-1]}")
        raced = race.get((finalist.task, finalist.config))
        if raced is not None:
            found[f"{space} with use_pdl" if overlaps else space, below].append(round(raced / 1e3 - us, 2))
    if given.out:
        given.out.write_text(json.dumps({", ".join(kind): its for kind, its in sorted(found.items())}) + "\n")
    print("| space | µs | finalists | race − final, median | least | most |\n|---|---|---|---|---|---|")
    for (space, below), its in sorted(found.items()):
        print(f"| {space} | {below} | {len(its)} | {median(its):.2f} | {min(its):.2f} | {max(its):.2f} |")


if __name__ == "__main__":
    main()
