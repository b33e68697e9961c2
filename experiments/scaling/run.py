"""Runs one campaign on 1, 2, 4, ... GPUs of this machine: wall time, and how busy each GPU is.

Usage: run.py --gpus 1 2 4 [--side-by-side] [--fleet local|ray] [--budget 256] [--beside FILE ...] --json FILE

Each count of GPUs is a process with a database of its own. It sees so many GPUs and as many shares of the cores: a
machine with fewer GPUs has fewer cores. A core is slower while its neighbours work. With --side-by-side they work in
every count: as many campaigns run at once as the GPUs of the largest count suffice for, and their wall times are
averaged. --beside puts counts that were run apart, on GPUs and cores of their own, into one table.
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
from functools import partial
from pathlib import Path
from statistics import fmean

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

# The projections of Llama-3.1-8B, at six sizes from decode to prefill.
LAYERS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
ROWS = (1, 16, 64, 256, 1024, 4096)
PROBLEMS = tuple(Problem.parse(f"{m}x{n}x{k}:bf16:nt") for m in ROWS for n, k in LAYERS)
WARM_SECONDS = 60.0


class Shares(Callback):
    """Adds up how long each GPU had something at hand to time, and whether it waited for builds."""

    def __init__(self, builders: int) -> None:
        self.builders = builders
        self.started = self.last = time.perf_counter()
        self.busy, self.seconds, self.starved = defaultdict(float), 0.0, 0.0
        self.busy_in_all = self.build_seconds = 0.0
        self.measurements, self.first_after = 0, None
        self.load = None

    def on_measurement(self, measurement, score, *, known) -> None:
        if self.first_after is None:
            self.first_after = time.perf_counter() - self.started
        self.measurements += 1
        self.build_seconds += measurement.build_seconds or 0.0

    def on_notice(self, line: str) -> None:
        print(line, flush=True)

    def on_load(self, load, seconds_left) -> None:
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        load, self.load = self.load, load  # what they had until now, they were given when it was looked before
        if load is None:
            return
        self.busy_in_all += passed * sum(load.workers.values())
        if now - self.started < WARM_SECONDS:
            return
        self.seconds += passed
        for name, at_work in load.workers.items():
            self.busy[name] += passed * at_work
        # What is with the builders is at most twice what they run: with as much as they run, none of them is idle.
        if not all(load.workers.values()) and load.queued + load.building >= self.builders:
            self.starved += passed


def campaign(given: argparse.Namespace) -> dict:
    """Run the campaign on the GPUs that this process sees."""
    plan = Plan(problems=PROBLEMS, budget=given.budget, seed=0)
    device = present_device()
    if device is None:
        sys.exit("no GPU here")
    protocol = registry.objective(plan.objective).protocol
    builders = len(os.sched_getaffinity(0)) - given.gpus[0]
    if given.fleet == "ray":
        from gemmtune.engine.execution.ray.cluster import Cluster
        from gemmtune.engine.execution.ray.executor import RayExecutor

        open_executor = partial(RayExecutor, Cluster(), device.sku, protocol_name=protocol, builders=builders)
    else:
        open_executor = partial(LocalExecutor, protocol_name=protocol, builders=builders)
    backend = measured_backend(plan, device, open_executor)
    executor = backend.executor
    if executor.parallel != given.gpus[0]:
        sys.exit(f"{executor.parallel} GPUs of one kind to be seen, not {given.gpus[0]}")
    with tempfile.TemporaryDirectory() as folder, closing(backend), Database.open(f"{folder}/m.db") as store:
        shares = Shares(builders)
        result = execute(plan, backend, store, [shares])
        seconds = time.perf_counter() - shares.started
    return report(given, shares, seconds) | {
        "rows": {row.problem.name: [c.config.json for c in row.choices[:1]] for row in result.table.rows}
    }


def report(given: argparse.Namespace, shares: Shares, seconds: float) -> dict:
    used = resource.getrusage(resource.RUSAGE_SELF)
    share = {name: round(busy / shares.seconds, 3) for name, busy in shares.busy.items()}
    return {
        "gpus": given.gpus[0],
        "fleet": given.fleet,
        "cores": len(os.sched_getaffinity(0)),
        "builders": shares.builders,
        "problems": len(PROBLEMS),
        "budget": given.budget,
        "measurements": shares.measurements,
        "wall_seconds": round(seconds, 1),
        "seconds_to_the_first_result": round(shares.first_after or 0.0, 1),
        "busy_share_after_the_first_minute": share,
        "share_with_an_idle_gpu_and_every_builder_at_work": round(shares.starved / shares.seconds, 3)
        if shares.seconds
        else None,
        "build_core_seconds": round(shares.build_seconds, 1),
        "cores_that_keep_a_gpu_busy": round(shares.build_seconds / shares.busy_in_all, 1)
        if shares.busy_in_all
        else None,
        "driver_cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
    }


def table(reports: list[dict]) -> str:
    """Return the reports as a table."""
    lines = ["GPUs  builders  results  wall s  speedup  GPU busy after 1 min  waits for builders  cores a GPU needs"]
    for r in reports:
        shares = list(r["busy_share_after_the_first_minute"].values())
        busy = " ".join(f"{share:.0%}" for share in shares) or "over before"
        waits = r["share_with_an_idle_gpu_and_every_builder_at_work"]
        lines.append(
            f"{r['gpus']:>4}  {r['builders']:>8}  {r['measurements']:>7}  {r['wall_seconds']:>6}  {r['speedup']:>6}x  "
            f"{busy:>20}  {'-' if waits is None else f'{waits:.0%}':>18}  {r['cores_that_keep_a_gpu_busy']:>17}"
        )
    return "\n".join(lines)


def visible() -> list[str]:
    """Return the GPUs that this process sees, as CUDA_VISIBLE_DEVICES names them."""
    import torch  # not at the top: experiments without a GPU import this module

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(torch.cuda.device_count())]


def side_by_side(given: argparse.Namespace, count: int, copies: int, folder: Path) -> dict:
    """Run `copies` campaigns at once, each on its own GPUs and cores; return a report with the mean wall time."""
    gpus, cores = visible(), sorted(os.sched_getaffinity(0))
    share = len(cores) // max(given.gpus)
    running = []
    for copy in range(copies):
        mine = slice(copy * count, (copy + 1) * count)
        found = folder / f"{copy}.json"
        terms = ["--gpus", str(count), "--fleet", given.fleet, "--budget", str(given.budget), "--json", str(found)]
        command = [sys.executable, "-P", __file__, "--one", *terms]
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": ",".join(gpus[mine])}
        os.sched_setaffinity(0, cores[mine.start * share : mine.stop * share])  # which it inherits
        running.append((subprocess.Popen(command, env=environment), found))
    os.sched_setaffinity(0, cores)
    if failed := [process.args for process, _ in running if process.wait()]:
        sys.exit(f"failed: {failed[0]}")
    reports = [json.loads(found.read_text()) for _, found in running]
    walls = [report["wall_seconds"] for report in reports]
    return reports[0] | {"wall_seconds": round(fmean(walls), 1), "wall_seconds_side_by_side": walls}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gpus", type=int, nargs="+", required=True)
    parser.add_argument("--side-by-side", action="store_true", help="with every GPU and core at work in every count")
    parser.add_argument("--fleet", choices=("local", "ray"), default="local")
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="results of other counts")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="here and now, on the GPUs and cores that are visible")
    given = parser.parse_args()
    if given.side_by_side and given.fleet == "ray":
        parser.error("--side-by-side is for --fleet local: campaigns on one host would join one Ray cluster")
    if given.one:
        given.json.write_text(json.dumps(campaign(given)))
        return
    # The first count must not pay for reading the libraries from the disk.
    subprocess.run([sys.executable, "-P", "-c", "import torch, triton, torch._inductor.select_algorithm"], check=False)
    reports: list[dict] = [report for path in given.beside for report in json.loads(path.read_text())]
    for count in given.gpus:
        copies = max(given.gpus) // count if given.side_by_side else 1
        with tempfile.TemporaryDirectory() as folder:
            reports.append(side_by_side(given, count, copies, Path(folder)))
        reports.sort(key=lambda report: report["gpus"])
        for report in reports:
            report["speedup"] = round(reports[0]["wall_seconds"] / report["wall_seconds"], 2)
        given.json.write_text(json.dumps(reports, indent=2) + "\n")  # what there is, if the next one fails
    print(table(reports))


if __name__ == "__main__":
    main()
