"""Measure the spread of short kernels' times between processes. Usage: processes.py --out FILE [--processes N].

Four Triton configs and the vendor library's kernel are built once per problem. Every process screens each of them and
holds their final, twice. Every second process rests before each job, like a campaign whose GPU waits for builds. `told`
prints the tables of README.md, from a stored file too.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from run import built_by_job

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

PROBLEMS = (
    *("2x2048x192", "2x4096x384", "4x2048x1024", "1x4096x1024", "128x2880x720", "256x2880x1024"),
    *("32x1536x2048", "64x4096x2048", "16x1536x4096", "8x3072x4096", "256x5120x2048", "32x4608x3584"),
)
CONFIGS = 4
FINALS = 2
REST_SECONDS = 0.05
LIBRARY = "aten"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file for the results")
    parser.add_argument("--processes", type=int, default=6, help="one after the other (default 6)")
    parser.add_argument("--process", type=float, metavar="REST", help="be one of them, with so many seconds of rest")
    parser.add_argument("--jobs", type=Path, help="and with these jobs")
    given = parser.parse_args()
    if given.process is not None:
        given.out.write_text(json.dumps(measured(pickle.loads(given.jobs.read_bytes()), given.process)) + "\n")
        return
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    results = {"device": device.name, "date": datetime.now(UTC).date().isoformat(), "processes": []}
    with tempfile.TemporaryDirectory() as folder:
        jobs = Path(folder) / "jobs"
        jobs.write_bytes(pickle.dumps(jobs_of(device, Path(folder))))
        for number in range(given.processes):
            rest, found = REST_SECONDS * (number % 2), Path(folder) / "found.json"
            own = [sys.executable, __file__, "--process", str(rest), "--jobs", str(jobs), "--out", str(found)]
            subprocess.run(own, check=True)
            results["processes"].append({"rest_seconds": rest} | json.loads(found.read_text()))
            given.out.write_text(json.dumps(results, separators=(",", ":")) + "\n")
    print("\n".join(told(results)))


def jobs_of(device, folder: Path) -> list[tuple[str, list[MeasureJob]]]:
    """Return the jobs of every process by problem: built kernels, the vendor library's last."""
    space, builds = registry.space("triton_mm"), []
    tasks = [Task(Problem.parse(f"{name}:bf16:nt"), device, "triton_mm") for name in PROBLEMS]
    for task in tasks:
        builds += [BuildJob(task, config) for config in space.seeds(task)[:CONFIGS]]
    built = built_by_job(builds, folder)
    found = []
    for task in tasks:
        jobs = [MeasureJob(task, job.config, built[job], early_stopping=True) for job in builds if job.task == task]
        library = Task(task.problem, device, LIBRARY)
        nothing = Config({})
        artifact = registry.space(LIBRARY).build(library, nothing, folder)
        found.append((task.problem.name, [*jobs, MeasureJob(library, nothing, artifact, early_stopping=True)]))
    return found


def measured(jobs: list[tuple[str, list[MeasureJob]]], rest_seconds: float) -> dict:
    """Measure in one process, and return µs of each kernel by problem: of the screening, and of each final."""
    from gemmtune.engine.measure.bench import Bench
    from gemmtune.engine.measure.protocols import protocol

    bench = Bench(protocol("graph-cold-l2"))
    race, finals = {}, {}
    for name, kernels in jobs:
        race[name], finals[name] = [], []
        for job in kernels:
            time.sleep(rest_seconds)
            reading = bench(job)
            assert reading.estimate is not None, reading.reason
            race[name].append(reading.estimate.time_ns / 1e3)
    for _ in range(FINALS):
        for name, kernels in jobs:
            time.sleep(rest_seconds)
            standings = sorted(bench(FinalJob(tuple(kernels))).ranking, key=lambda s: s.number)
            finals[name].append([s.estimate.time_ns / 1e3 for s in standings])
    return {"race": race, "finals": finals}


def told(results: dict) -> list[str]:
    """Render standard deviations between processes in µs, of the fastest kernel per problem."""
    processes = results["processes"]
    names = list(processes[0]["race"])
    race = np.array([[p["race"][name] for name in names] for p in processes])  # process, problem, kernel
    finals = np.array([[p["finals"][name] for name in names] for p in processes])  # process, problem, final, kernel
    fastest = finals.mean(axis=(0, 2)).argmin(axis=1)
    race_us = race[:, range(len(names)), fastest]
    final_us = finals[:, range(len(names)), :, fastest].swapaxes(0, 1)  # process, problem, final
    rows = ["| its time | problems | race | final | a final and the next of its process |", "|" + "---|" * 5]
    for low, high in ((0, 7), (7, 14)):
        chosen = (final_us.mean(axis=(0, 2)) >= low) & (final_us.mean(axis=(0, 2)) < high)
        again = float(np.std(final_us[:, chosen, 1] - final_us[:, chosen, 0]) / np.sqrt(2))
        spreads = f"{spread(race_us[:, chosen]):.3f} | {spread(final_us[:, chosen, 0]):.3f}"
        rows.append(f"| {low} to {high} µs | {chosen.sum()} | {spreads} | {again:.3f} |")
    rested = np.array([p["rest_seconds"] > 0 for p in processes])
    for name, times in (("race", race_us), ("final", final_us)):
        apart = float((times[rested].mean(axis=0) - times[~rested].mean(axis=0)).mean())
        rows.append(f"{name}: {apart:+.3f} µs where the GPU rests before each job")
    return rows


def spread(times: np.ndarray) -> float:
    """Return the standard deviation along the first axis, pooled over all others."""
    return float(np.sqrt(np.mean(np.var(times, axis=0, ddof=1))))


if __name__ == "__main__":
    main()
