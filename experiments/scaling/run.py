"""Runs one campaign on 1, 2, 4, ... GPUs of this machine: wall time, and how busy GPUs, builders and driver are.

Usage: run.py --gpus 1 2 4 [--side-by-side] [--fleet local|ray] [--budget 256] [--beside FILE ...] --json FILE
       run.py --gpus 4 --shapes 100 --budget 24 [--fleet local|ray] [--beside FILE ...] --json FILE

Each count of GPUs is a process with a database of its own. It sees so many GPUs and as many shares of the cores: a
machine with fewer GPUs has fewer cores. A core is slower while its neighbours work. With --side-by-side they work in
every count: as many campaigns run at once as the GPUs of the largest count suffice for, and their wall times are
averaged. --beside puts counts that were run apart, on GPUs and cores of their own, into one table. --shapes tunes so
many products that nothing shipped knows. What FILE holds is not run again: a command that was cut off may be repeated.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import closing
from functools import partial
from pathlib import Path
from random import Random
from statistics import fmean

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes, shipped_searches
from gemmtune.engine.toolchain.gpu_info import present_device

# The projections of Llama-3.1-8B, at six sizes from decode to prefill.
LAYERS = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
ROWS = (1, 16, 64, 256, 1024, 4096)
PROBLEMS = tuple(Problem.parse(f"{m}x{n}x{k}:bf16:nt") for m in ROWS for n, k in LAYERS)
SETTING = ("gpus", "fleet", "cores", "problems", "budget", "side_by_side")
"""Fields that tell two runs apart."""


class Shares(Callback):
    """Adds up how long each GPU had something at hand to time, and notes when what was over."""

    def __init__(self, builders: int) -> None:
        self.builders = builders
        self.started = self.last = time.perf_counter()
        self.busy = defaultdict(float)
        self.build_seconds = self.first_after = self.searched_after = self.last_final_after = 0.0
        self.measurements = 0
        self.load = None
        self.cpu = time.process_time()

    def on_measurement(self, measurement, score, *, known) -> None:
        if not self.measurements:
            self.first_after, self.cpu = time.perf_counter() - self.started, time.process_time()  # imports are over
        self.measurements += 1
        self.build_seconds += measurement.build_seconds or 0.0

    def on_search_end(self, search, reason) -> None:
        self.searched_after = time.perf_counter() - self.started

    def on_final(self, final) -> None:
        self.last_final_after = time.perf_counter() - self.started

    def on_notice(self, line: str) -> None:
        print(line, flush=True)

    def on_load(self, load, seconds_left) -> None:
        now = time.perf_counter()
        passed, self.last = now - self.last, now
        load, self.load = self.load, load  # what they had until now, they were given when it was looked before
        for name, at_work in load.workers.items() if load and self.measurements else ():
            self.busy[name] += passed * at_work


def unseen(count: int) -> tuple[Problem, ...]:
    """Return so many products of layers' sizes that no landscape or search which ships is of."""
    paths = (*embedded("triton_mm"), *shipped_searches("triton_mm"))
    seen = {landscape.problem for path in paths for landscape in read_landscapes(path)}
    draw, found = Random(5), {}
    while len(found) < count:
        m = draw.choice((1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 3072, 4096))
        n, k = (128 * draw.randint(8, 128) for _ in "nk")
        problem = Problem.parse(f"{m}x{n}x{k}:bf16:nt")
        if problem not in seen:
            found[problem] = None
    return tuple(found)


def campaign(given: argparse.Namespace) -> dict:
    """Run the campaign on the GPUs that this process sees."""
    plan = Plan(problems=tuple(map(Problem.parse, given.problems)), budget=given.budget, seed=0)
    device = present_device()
    if device is None:
        sys.exit("no GPU here")
    cores = len(os.sched_getaffinity(0))
    builders, opened = cores - given.gpus[0], LocalExecutor
    if given.fleet == "ray":
        from gemmtune.engine.execution.ray.cluster import Cluster
        from gemmtune.engine.execution.ray.executor import RayExecutor

        # A cluster of its own: campaigns side by side on one host would join the one that runs there.
        cluster = Cluster("local", cores) if given.side_by_side else Cluster()
        opened = partial(RayExecutor, cluster, device)
    terms = {"protocol_name": registry.objective(plan.objective).protocol, "builders": builders, "evenly": False}
    backend = measured_backend(plan, device, partial(opened, **terms))
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
    driver = time.process_time() - shares.cpu
    searching = max(shares.searched_after - shares.first_after, 1e-9)
    return {
        "gpus": given.gpus[0],
        "fleet": given.fleet,
        "cores": len(os.sched_getaffinity(0)),
        "builders": shares.builders,
        "problems": len(given.problems),
        "budget": given.budget,
        "side_by_side": given.side_by_side,
        "measurements": shares.measurements,
        "wall_seconds": round(seconds, 1),
        "seconds_to_the_first_result": round(shares.first_after, 1),
        "seconds_to_the_last_search": round(shares.searched_after, 1),
        "seconds_to_the_last_final": round(shares.last_final_after, 1),
        "builders_busy_while_searching": round(shares.build_seconds / shares.builders / searching, 3),
        "gpus_busy_while_searching": {name: round(busy / searching, 3) for name, busy in shares.busy.items()},
        "build_core_seconds": round(shares.build_seconds, 1),
        "cores_that_keep_a_gpu_busy": round(shares.build_seconds / max(sum(shares.busy.values()), 1e-9), 1),
        "driver_cpu_seconds": round(driver, 1),
        "driver_ms_per_result": round(1e3 * driver / max(shares.measurements, 1), 2),
    }


def table(reports: list[dict]) -> str:
    """Return the reports as a table."""
    lines = ["GPUs  fleet  builders busy  results  wall s  speedup  first s  finals s  driver ms  same rows  GPUs busy"]
    for r in reports:
        finals = r["seconds_to_the_last_final"] - r["seconds_to_the_last_search"]
        ours, theirs = reports[0]["rows"], r["rows"]
        same = sum(ours[name] == theirs.get(name) for name in ours)
        lines.append(
            f"{r['gpus']:>4}  {r['fleet']:>5}  {r['builders_busy_while_searching']:>13.0%}  {r['measurements']:>7}  "
            f"{r['wall_seconds']:>6}  {r['speedup']:>6}x  {r['seconds_to_the_first_result']:>7}  {finals:>8.1f}  "
            f"{r['driver_ms_per_result']:>9}  {same:>3} of {len(ours):<3}"
            + " ".join(f"{share:.0%}" for share in r["gpus_busy_while_searching"].values())
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
        terms += ["--problems", *given.problems, *(["--side-by-side"] if given.side_by_side else [])]
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
    parser.add_argument("--shapes", type=int, default=0, help="products that nothing shipped knows, in place of the 24")
    parser.add_argument("--problems", nargs="+", default=[each.name for each in PROBLEMS], help="by name, likewise")
    parser.add_argument("--beside", type=Path, nargs="*", default=[], help="results of other counts")
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--one", action="store_true", help="here and now, on the GPUs and cores that are visible")
    given = parser.parse_args()
    if given.one:
        given.json.write_text(json.dumps(campaign(given)))
        return
    if given.shapes:
        given.problems = [each.name for each in unseen(given.shapes)]
    # The first count must not pay for reading the libraries from the disk.
    subprocess.run([sys.executable, "-P", "-c", "import torch, triton, torch._inductor.select_algorithm"], check=False)
    kept = [report for path in given.beside for report in json.loads(path.read_text())]
    reports: list[dict] = json.loads(given.json.read_text()) if given.json.exists() else []
    share = len(os.sched_getaffinity(0)) // max(given.gpus)
    for count in given.gpus:
        wanted = (count, given.fleet, count * share, len(given.problems), given.budget, given.side_by_side)
        if wanted in [tuple(report[name] for name in SETTING) for report in reports]:
            continue
        copies = max(given.gpus) // count if given.side_by_side else 1
        with tempfile.TemporaryDirectory() as folder:
            reports.append(side_by_side(given, count, copies, Path(folder)))
        given.json.write_text(json.dumps(reports, indent=2) + "\n")  # what there is, if the next one fails
    together = sorted([*kept, *reports], key=lambda report: report["gpus"])
    for report in together:
        report["speedup"] = round(together[0]["wall_seconds"] / report["wall_seconds"], 2)
    given.json.write_text(json.dumps(reports, indent=2) + "\n")
    print(table(together))


if __name__ == "__main__":
    main()
