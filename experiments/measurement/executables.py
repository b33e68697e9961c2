"""Measure the cost of a kernel's first runs in its own executables. Usage: executables.py --out FILE [--turns N].

Kernels of one problem share a few executables (engine/measure/timing/kernel_timer.py). Vendor kernels with clusters, or
of two launches, get executables of their own. Here four executables are made in several ways, anew in every turn, and
run three blocks each. `told` prints the rows of README.md's table, from a stored file too.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections import defaultdict
from datetime import UTC, datetime
from math import exp, log
from pathlib import Path
from statistics import fmean, median, stdev

import torch
from cuda.bindings import driver
from run import built_by_job

from gemmtune.engine.measure.builder import BuildJob
from gemmtune.engine.measure.deciding.duty_cycle import DutyCycle
from gemmtune.engine.measure.operands.operand_sets import reference_kernel
from gemmtune.engine.measure.problem_setup import SetupCache
from gemmtune.engine.measure.timing.cuda_graphs import Executable, Graph
from gemmtune.engine.measure.timing.kernel_timer import KernelTimer
from gemmtune.engine.platform.cuda_driver import checked
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.statistics import estimate
from gemmtune.engine.store.landscapes.landscape_file import embedded, read_landscapes

RECORDED = ("16x4096x4096:bf16:nt", "1x6144x4096:bf16:nt", "256x6144x4096:bf16:nt")
"""Problems with recorded Triton configs."""
VENDORS = ("2x4096x6144:bf16:nn", "64x4096x14336:bf16:nt")
KERNELS = 2
EXECUTABLES, BLOCKS = 4, 12  # the engine has eight
WAYS = {  # what each is made of, and whether it is uploaded before it is updated or runs
    "itself, not uploaded": ("itself", False),
    "itself": ("itself", True),
    "next part, not uploaded": ("next part", False),
    "next part": ("next part", True),
    "another kernel": ("another kernel", True),
}
AS_IT_IS = "as the engine does"
COLUMNS = (  # of README.md's table: what, of which way, which blocks
    ("not uploaded, first run", "itself, not uploaded", slice(EXECUTABLES)),
    ("later ones", "itself, not uploaded", slice(EXECUTABLES, BLOCKS)),
    ("updated before it is uploaded", "next part, not uploaded", slice(EXECUTABLES, BLOCKS)),
    ("uploaded, then updated", "next part", slice(BLOCKS)),
    ("made of another kernel's graph", "another kernel", slice(BLOCKS)),
    (AS_IT_IS, AS_IT_IS, slice(BLOCKS)),
)


class NotUploaded(Executable):
    """Executable that is instantiated but not uploaded."""

    def __init__(self, graph, stream) -> None:
        self._original = self._graph = graph
        self._handle = checked(driver.cuGraphInstantiate(graph.handle, 0))


def made(timer: KernelTimer, way: str, another: Graph | None) -> dict[int, Executable]:
    """Make executables in one of the ways, by the turn in which they run."""
    of, uploaded = WAYS[way]
    make, stream = (Executable if uploaded else NotUploaded), timer._timing.context.main_stream
    if of == "another kernel":
        return {turn: make(another, stream) for turn in range(EXECUTABLES)}
    return {turn: make(timer._captured(turn + (of == "next part")), stream) for turn in range(EXECUTABLES)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="file for the results")
    parser.add_argument("--turns", type=int, default=12, help="how often each is made anew (default 12)")
    given = parser.parse_args()
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    results = {"device": device.name, "date": datetime.now(UTC).date().isoformat(), "torch": torch.__version__}
    with tempfile.TemporaryDirectory() as folder:
        kernels = kernels_of(device, Path(folder))
        setups, duty_cycle = SetupCache(True, torch.device("cuda", 0)), DutyCycle(time.perf_counter, time.sleep)
        for name in (*RECORDED, *VENDORS):
            results[name] = of_problem(setups, duty_cycle, Problem.parse(name), kernels.get(name, {}), given.turns)
            given.out.write_text(json.dumps(results, separators=(",", ":")) + "\n")
            print(told(name, results[name]), flush=True)


def kernels_of(device, folder: Path) -> dict:
    """Build and load the best recorded Triton configs, by problem."""
    space, jobs = registry.space("triton_mm"), []
    recorded = {x.problem: x for path in embedded("triton_mm") for x in read_landscapes(path)}
    for name in RECORDED:
        task = Task(Problem.parse(name), device, "triton_mm")
        points = [p for p in recorded[task.problem].points.values() if p.time_ns and space.check(task, p.config)]
        jobs += [BuildJob(task, p.config) for p in sorted(points, key=lambda p: p.time_ns)[:KERNELS]]
    found = defaultdict(dict)
    for job, artifact in built_by_job(jobs, folder).items():
        found[job.task.problem.name][f"triton {job.config.json}"] = space.load(artifact, job.task)
    return found


def of_problem(setups, duty_cycle, problem, kernels, turns: int) -> dict:
    """Return the blocks of each kernel by the way of its executables, in running order per turn."""
    setup = setups.get(problem)
    timing = setups.timer(reference_kernel, problem)._timing
    kernels = {"vendor": reference_kernel} | kernels
    for kernel in kernels.values():
        reason = setup.check(kernel, 0).reason
        assert not reason, reason
    graphs = {name: timing.capture(kernel, 0) for name, kernel in kernels.items()}
    shared = {name: bool(timing.shared_executables(graph)) for name, graph in graphs.items()}
    others = {
        name: next((graphs[o] for o in kernels if o != name and shared[o]), None) if shared[name] else None
        for name in kernels
    }
    taken = {name: defaultdict(list) for name in kernels}
    from_stream = defaultdict(list)
    for turn in range(turns):
        runs = [(name, way) for name in kernels for way in (*WAYS, AS_IT_IS) if way != "another kernel" or others[name]]
        random.Random(turn).shuffle(runs)
        for name, way in runs:
            timer = KernelTimer(kernels[name], timing)
            if way in WAYS:
                timer._executables = made(timer, way, others[name])
            levels = []
            for number in range(BLOCKS):
                block = timer.block(number)
                duty_cycle.add_busy(block.busy_ns / 1e9)
                levels.append(round(estimate(block.samples_ns).time_ns, 1))
            timer.close()
            taken[name][way].append(levels)
        for name, kernel in kernels.items():
            timer = KernelTimer(kernel, timing)
            timer.start_singles(8)
            from_stream[name].append(round(median(timer.single().samples_ns[0] for _ in range(8)), 1))
            time.sleep(0.002)
    costs = {"graph": timing.one_launch.cost_ns, "stream": timing.single_cost_ns}
    return {"vendor_ns": setup.level.time_ns, "cost_ns": costs} | {
        name: {
            "shares": shared[name],
            "blocks_ns": taken[name],
            "stream_ns": from_stream[name],
            "back_to_back_ns": back_to_back(timing, kernel),
        }
        for name, kernel in kernels.items()
    }


def back_to_back(timing, kernel) -> list[float]:
    """Return the ns per launch of consecutive launches on all operand sets, in a graph without events between them."""
    tools, sets = timing.context, timing.sets.kernel
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def enqueue() -> None:
        for operands in sets:
            kernel(*operands.arguments)

    graph = tools.capture(enqueue)
    executable = Executable(graph, tools.main_stream)
    found = []
    for _ in range(9):
        with tools.barrier.held():
            timing.enqueue_lead_in()
            start.record()
            executable.launch(graph, tools.main_stream)
            end.record()
        torch.cuda.synchronize()
        found.append(round(start.elapsed_time(end) * 1e6 / len(sets), 1))
        time.sleep(0.02)
    return found[1:]


def told(problem: str, found: dict) -> str:
    """Render the ns that blocks take beyond those in executables made of the kernel itself, with standard errors."""
    lines = [problem]
    for name, of in found.items():
        if not isinstance(of, dict) or "blocks_ns" not in of:
            continue
        ways = {way: [[log(ns) for ns in row] for row in rows] for way, rows in of["blocks_ns"].items()}
        level_ns = exp(fmean(log_ns for row in ways["itself"] for log_ns in row))
        lines.append(f"  {name}: {level_ns / 1e3:.1f} µs, {'shares' if of['shares'] else 'has its own'}")
        for what, way, blocks in COLUMNS:
            if way in ways:
                pairs = zip(ways[way], ways["itself"], strict=True)
                beyond = [level_ns * (fmean(row[blocks]) - fmean(base[blocks])) for row, base in pairs]
                lines.append(f"    {what:36} {fmean(beyond):+5.0f} ({stdev(beyond) / len(beyond) ** 0.5:.0f})")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
