"""Measures the results per second through driver and database, with simulated workers that are real actors.

Usage: simulated.py [--fleet ray|local] [--workers 64] [--builders 2] [--results 200000] [--database URL] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded

MEBIBYTE = 2**20
BUDGET = 640
"""Evaluations per task; some hundred tasks come and go."""


class Meter(Callback):
    """Counts measurements from the first one on, and reads this process's memory."""

    def __init__(self, every: int) -> None:
        self.every, self.count, self.since, self.marks = every, 0, 0.0, []

    def on_measurement(self, measurement, score, *, known) -> None:
        self.count += 1
        if self.count == 1:
            self.since = time.perf_counter()
        if self.count % self.every == 0:
            self.marks.append((self.count, round(time.perf_counter() - self.since, 1), resident_mb()))
            print(self.marks[-1], flush=True)

    def on_notice(self, line: str) -> None:
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fleet", choices=("ray", "local"), default="ray")
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--builders", type=int, default=2)
    parser.add_argument("--results", type=int, default=200_000)
    parser.add_argument("--database", help="URL; by default a file that is deleted")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    plan = Plan(sampler="exhaustive", budget=BUDGET, batch=64)
    landscapes = copies(completed(read_all(embedded()), plan.spaces, None), given.results)
    began = time.perf_counter()
    if given.fleet == "ray":
        from gemmtune.engine.execution.ray.cluster import Cluster

        sys.path.append(str(Path(__file__).parents[2] / "tests/engine/execution/ray"))
        from simulation import SimulatedExecutor

        executor = SimulatedExecutor(landscapes, Cluster(), workers=given.workers, builders=given.builders)
    else:
        executor = ReplayExecutor(landscapes)
    backend = replayed_backend(plan, landscapes, executor)
    meter = Meter(max(given.results // 20, 1))
    with tempfile.TemporaryDirectory() as folder:
        with Database.open(given.database or f"{folder}/measurements.db") as store:
            used = time.process_time()
            result = execute(plan, backend, store, [meter])
            used = time.process_time() - used
            after = resident_mb()
        backend.close()
    half = len(meter.marks) // 2  # by then every actor is there
    rate = (meter.marks[-1][0] - meter.marks[half][0]) / (meter.marks[-1][1] - meter.marks[half][1])
    report = {
        "fleet": given.fleet,
        "workers": given.workers if given.fleet == "ray" else 0,
        "cores": len(os.sched_getaffinity(0)),
        "results": meter.count,
        "results_a_second": round(rate),
        "driver_cpu_ms_a_result": round(1000 * used / meter.count, 3),
        "start_seconds": round(meter.since - began, 1),
        "driver_mb": {count: mb for count, _, mb in meter.marks},
        "driver_mb_with_its_table": after,
        "rows": len(result.table.rows),
    }
    text = json.dumps(report, indent=2)
    if given.json:
        given.json.write_text(text + "\n")
    print(text)


def copies(landscapes, results: int):
    """Return copies of the landscapes under other problems, until there are so many results to evaluate."""
    found, number = [], 0
    while sum(min(len(landscape.points), BUDGET) for landscape in found) < results:
        for landscape in landscapes:
            problem = replace(landscape.problem, k=landscape.problem.k + 256 * number)
            found.append(replace(landscape, problem=problem, name=problem.name))
        number += 1
    return found


def resident_mb() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // MEBIBYTE


if __name__ == "__main__":
    main()
