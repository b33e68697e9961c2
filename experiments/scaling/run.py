"""The same campaign on 1, 2, 4, ... GPUs of this machine: wall time, and how busy each GPU is.

Usage: run.py --gpus 1 2 4 [--fleet local|ray] [--budget 64] [--builders N] --json FILE
Each count is a process of its own, that sees so many GPUs, with a database of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from pathlib import Path

from gemmtune.engine.campaign import session
from gemmtune.engine.campaign.local_fleet import LocalFleet
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.measure.gpu import present_device
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

# The projections of Llama-3.1-8B, at six sizes from decode to prefill.
LAYERS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
ROWS = (1, 16, 64, 256, 1024, 4096)
PROBLEMS = tuple(Problem.parse(f"{m}x{n}x{k}:bf16:nt") for m in ROWS for n, k in LAYERS)
WARM_SECONDS = 60.0


class Shares:
    """A watcher that adds up how long each worker had something at hand, and whether builds were what it waited for."""

    def __init__(self) -> None:
        self.started = self.last = time.perf_counter()
        self.busy, self.seconds, self.starved, self.measurements = defaultdict(float), 0.0, 0.0, 0

    def measured(self, measurement, score, *, known) -> None:
        self.measurements += 1

    def noticed(self, notice: str) -> None:
        print(notice, flush=True)

    def looked(self, load, seconds_left) -> None:
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        if load is None or now - self.started < WARM_SECONDS:
            return
        self.seconds += passed
        idle = [name for name, at_work in load.workers.items() if not at_work]
        for name in load.workers:
            self.busy[name] += 0.0 if name in idle else passed
        if idle and load.queued:
            self.starved += passed

    def __getattr__(self, name):
        return lambda *args, **named: None


def campaign(given: argparse.Namespace) -> dict:
    """Run it on the GPUs this process sees."""
    plan = Plan(problems=PROBLEMS, budget=given.budget, seed=0)
    device = present_device()
    if device is None:
        sys.exit("no GPU here")
    searches = session.measured_searches(plan, device)
    spaces = tuple(dict.fromkeys(search.task.space for search in searches))
    protocol = registry.objective(plan.objective).protocol
    if given.fleet == "ray":
        from gemmtune.engine.campaign.ray_cluster import Cluster
        from gemmtune.engine.campaign.ray_fleet import RayFleet

        fleet = RayFleet(Cluster(), device.sku, spaces, protocol, builders=given.builders)
    else:
        fleet = LocalFleet(spaces, protocol, builders=given.builders)
    shares, gpus = Shares(), fleet.parallel
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, closing(fleet), Database.open(f"{folder}/m.db") as store:
        result = session.execute(plan, device, searches, fleet, store, shares)
        seconds = time.perf_counter() - began
        build_seconds = sum(m.build_seconds or 0.0 for m in result.measurements)
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "gpus": gpus,
        "fleet": given.fleet,
        "cores": len(os.sched_getaffinity(0)),
        "problems": len(PROBLEMS),
        "measurements": shares.measurements,
        "wall_seconds": round(seconds, 1),
        "busy_share_after_the_first_minute": {n: round(b / shares.seconds, 3) for n, b in shares.busy.items()},
        "share_with_an_idle_gpu_and_builds_queued": round(shares.starved / shares.seconds, 3)
        if shares.seconds
        else None,
        "build_core_seconds": round(build_seconds, 1),
        "build_cores_a_gpu": round(build_seconds / seconds / gpus, 2),
        "driver_cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
        "rows": {row.problem.name: [c.config.json for c in row.choices[:1]] for row in result.table.rows},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", required=True)
    parser.add_argument("--fleet", choices=("local", "ray"), default="local")
    parser.add_argument("--budget", type=int, default=64)
    parser.add_argument("--builders", type=int)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="here and now, on the GPUs that are visible")
    given = parser.parse_args()
    if given.one:
        given.json.write_text(json.dumps(campaign(given)))
        return
    reports = []
    for count in given.gpus:
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(count)))}
        terms = ["--gpus", str(count), "--fleet", given.fleet, "--budget", str(given.budget)]
        terms += ["--builders", str(given.builders)] if given.builders else []
        subprocess.run(
            [sys.executable, "-P", __file__, "--one", *terms, "--json", given.json], env=environment, check=True
        )
        reports.append(json.loads(given.json.read_text()))
        for report in reports:
            report["speedup"] = round(reports[0]["wall_seconds"] / report["wall_seconds"], 2)
        print({name: value for name, value in reports[-1].items() if name != "rows"}, flush=True)
    given.json.write_text(json.dumps(reports, indent=2) + "\n")


if __name__ == "__main__":
    main()
