"""Time kernels in the executable graphs that a process makes first. Usage: early_executables.py --out FILE.

Each process makes a number of executables that time nothing, and sets up two problems, in either order. It times a
Triton kernel and the vendor library's for each problem: after its setup, after a measurement, and after both setups.
`told` prints the table of README.md, from a stored file too.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from run import built_by_job

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.measure.jobs import MeasureJob
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

PROBLEMS = ("16x4096x4096", "1024x1280x3420")
MADE = (0, 32, 128)
BLOCKS, REST_SECONDS = 16, 0.004


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file for the results")
    given = parser.parse_args()
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    results = {"device": device.name, "date": datetime.now(UTC).date().isoformat(), "processes": []}
    with tempfile.TemporaryDirectory() as folder:
        jobs = jobs_of(device, Path(folder))
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(max_workers=1, mp_context=spawned, max_tasks_per_child=1) as processes:
            for made, order in product(MADE, (jobs, jobs[::-1])):
                rows = processes.submit(timed, order, made).result()
                results["processes"].append({"made": made, "rows": rows})
                given.out.write_text(json.dumps(results, separators=(",", ":")) + "\n")
    print("\n".join(told(results)))


def jobs_of(device, folder: Path) -> list[MeasureJob]:
    """Return a job per problem: the first of the space's seeds, built."""
    space = registry.space("triton_mm")
    tasks = [Task(Problem.parse(f"{name}:bf16:nt"), device, "triton_mm") for name in PROBLEMS]
    builds = [BuildJob(task, space.seeds(task)[0]) for task in tasks]
    built = built_by_job(builds, folder)
    return [MeasureJob(job.task, job.config, built[job]) for job in builds]


def timed(jobs: list[MeasureJob], made: int) -> list[dict]:
    """Return the ns between events of the Triton kernel and of the vendor's, and the cost of events at setup."""
    from gemmtune.engine.measure.bench import Bench
    from gemmtune.engine.measure.protocols import protocol
    from gemmtune.engine.measure.timing import cuda_graphs
    from gemmtune.engine.measure.timing.kernel_timer import KernelTimer
    from gemmtune.engine.statistics import estimate

    cuda_graphs._EARLY_EXECUTABLES = made
    bench, rows = Bench(protocol("graph-cold-l2")), []
    kernels = {job.task: registry.space(job.task.space).load(job.artifact, job.task) for job in jobs}

    def look(job: MeasureJob, when: str) -> None:
        timing = bench._setups._entry(job.task.problem)[1]
        timer, kernel_ns, library_ns = KernelTimer(kernels[job.task], timing), [], []
        for number in range(BLOCKS):
            time.sleep(REST_SECONDS)
            block = timer.block(number)
            kernel_ns += block.samples_ns
            library_ns += block.reference_ns
        timer.close()
        events_ns = timing.one_launch.cost_ns
        rows.append(
            {
                "problem": job.task.problem.name.partition(":")[0],
                "when": when,
                "kernel_ns": round(estimate(kernel_ns).time_ns + events_ns),
                "library_ns": round(estimate(library_ns).time_ns + events_ns),
                "events_ns": round(events_ns),
            }
        )

    for job in jobs:
        bench._setups.get(job.task.problem)
        look(job, "set up")
        bench(job)
        look(job, "measured")
    for job in jobs:
        look(job, "both set up")
    return rows


def told(results: dict) -> list[str]:
    """Render a line per process and problem, in the order of setup."""
    lines = []
    for process in results["processes"]:
        for name in dict.fromkeys(row["problem"] for row in process["rows"]):
            rows = [row for row in process["rows"] if row["problem"] == name]
            times = [", ".join(f"{row[of] / 1e3:.2f}" for row in rows) for of in ("library_ns", "kernel_ns")]
            lines.append(f"| {process['made']} | {name} | {' | '.join(times)} | {rows[0]['events_ns'] / 1e3:.2f} |")
    return lines


if __name__ == "__main__":
    main()
