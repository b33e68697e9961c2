"""Measure the precision of gemmtune's numbers, and their cost. Usage: run.py --out FOLDER. Needs a CUDA GPU.

Every arm of `arms.py` runs in a process of its own, one after the other, on equal binaries.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import report

from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes
from gemmtune.engine.toolchain.gpu_info import present_device

# Bound by memory, by latency, by ragged copies and by the power limit, in this order.
REPEATED = ("16x4096x4096:bf16:nt", "64x4096x14336:bf16:nt", "1024x1280x3420:bf16:nt", "2048x4096x4096:bf16:nt")
SELECTED = (
    *REPEATED,
    "1x6144x4096:bf16:nt",
    "128x2880x2880:bf16:nt",
    "256x6144x4096:bf16:nt",
    "8192x1024x8192:bf16:nt",
)
RATED = ("16x4096x4096:bf16:nt", "128x2880x2880:bf16:nt", "1x6144x4096:bf16:nt")  # half of each space below 50 µs
BEST, OTHERS, RATED_OTHERS = 25, 25, 35
ARMS = (
    ("pass", "1"),
    ("pass", "2"),
    ("race",),
    ("do_bench",),
    ("inductor",),
    ("truth", "1"),
    ("truth", "2"),
    ("rate",),
    ("crash",),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--arms", nargs="*", help="only these (default: all)")
    given = arguments.parse_args()
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        facts = {"device": device.name, "date": datetime.now(UTC).date().isoformat()} | build(device, work)
        (work / "facts.json").write_text(json.dumps(facts))
        for arm in ARMS:
            if given.arms and arm[0] not in given.arms:
                continue
            began = time.perf_counter()
            command = [sys.executable, str(Path(__file__).with_name("arms.py")), str(work), *arm]
            ended = subprocess.run(command, check=False).returncode
            print(
                f"{' '.join(arm)}: {time.perf_counter() - began:.1f} s" + (f", exit {ended}" if ended else ""),
                flush=True,
            )
            results = {path.stem: json.loads(path.read_text()) for path in sorted(work.glob("*.json"))}
            (given.out / "result.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")
    report.print_report(results)


def build(device, folder: Path) -> dict:
    """Build the configs that every arm times: the best recorded ones of each problem, and others drawn at random."""
    space, rng, jobs = registry.space("triton_mm"), random.Random(0), []
    recorded = {x.problem: x for path in embedded("triton_mm") for x in read_landscapes(path)}
    for name in SELECTED:
        task = Task(Problem.parse(name), device, "triton_mm")
        points = [
            p for p in recorded[task.problem].points.values() if p.time_ns is not None and space.check(task, p.config)
        ]
        points.sort(key=lambda p: p.time_ns)
        others = RATED_OTHERS if name in RATED else OTHERS
        chosen = [p.config for p in points[:BEST]] + rng.sample([p.config for p in points[BEST:]], others)
        jobs += [BuildJob(task, config) for config in chosen]
    began = time.perf_counter()
    built = built_by_job(jobs, folder)
    items = [(job.task, job.config, built[job]) for job in jobs]
    (folder / "built.pickle").write_bytes(pickle.dumps(items))
    seconds = time.perf_counter() - began
    print(f"{len(items)} configs built in {seconds:.1f} s", flush=True)
    return {"configs": len(items), "build_seconds": round(seconds, 1), "toolchain": space.toolchain().text}


def built_by_job(jobs, folder: Path) -> dict:
    """Build all jobs on all cores but one, and return the artifacts by job."""
    pool = builder_pool(("triton_mm",), folder, max(1, len(os.sched_getaffinity(0)) - 1), 100.0)
    with closing(pool):
        return {outcome.job: outcome.result for outcome in pool.run(jobs)}


if __name__ == "__main__":
    main()
