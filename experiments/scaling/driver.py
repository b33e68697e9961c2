"""Measures the CPU time of a campaign's driver, and how busy it keeps builders that only wait.

Usage: driver.py --gpus 1 2 4

The campaign of run.py, with the real driver, sampler, database and pools of processes; 15 builders and a worker for
each GPU there might be. They take no CPU, so that two cores do for sixty of them. Needs `gemmtune[triton]`, and no GPU.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing

import waiting
from run import PROBLEMS, Shares

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.workers import measured_provenance, problem_of
from gemmtune.engine.processes.process_pool import ProcessPool, wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

BUILDERS_A_GPU = 15


class WaitingMachine:
    """Builders and workers that only wait."""

    def __init__(self, gpus: int) -> None:
        builders = ProcessPool(waiting.build, BUILDERS_A_GPU * gpus, 60.0, preload=["waiting"])
        workers = {f"gpu{i}": ProcessPool(waiting.measure, 1, 60.0, sends_ahead=True) for i in range(gpus)}
        self._processes = [builders, *workers.values()]
        self.builders, self.workers = Dispatcher({"cpu": builders}), Dispatcher(workers, affinity=problem_of)

    def wait(self, timeout_seconds: float) -> None:
        wait_for_any(self._processes, timeout_seconds)

    def close(self) -> None:
        self.workers.close()
        self.builders.close()


def campaign(gpus: int, budget: int) -> str:
    """Run the campaign and return its figures in one line."""
    plan = Plan(problems=PROBLEMS, budget=budget)
    device = catalogue.device("H200")
    toolchains = {name: registry.space(name).toolchain() for name in ("aten", "triton_mm")}
    provenance = measured_provenance(toolchains, registry.objective("latency").protocol)
    executor = BuildMeasurePipeline(provenance, lambda: WaitingMachine(gpus), gpus)
    backend = measured_backend(plan, device, lambda spaces: executor)
    with tempfile.TemporaryDirectory() as folder, closing(backend), Database.open(f"{folder}/m.db") as store:
        shares = Shares(BUILDERS_A_GPU * gpus)
        computed = time.process_time()
        execute(plan, backend, store, [shares])
        computed, seconds = time.process_time() - computed, time.perf_counter() - shares.started
    busy = shares.build_seconds / shares.builders / seconds
    each = f"{computed:.1f} s of CPU, {1e3 * computed / shares.measurements:.1f} ms a result"
    return f"{gpus} GPUs: {seconds:.1f} s, builders busy {busy:.0%}, driver {each}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--budget", type=int, default=256)
    given = parser.parse_args()
    for gpus in given.gpus:
        print(campaign(gpus, given.budget), flush=True)


if __name__ == "__main__":
    main()
