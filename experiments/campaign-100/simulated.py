"""How busy the real driver keeps builders and a GPU of virtual time. Usage: simulated.py [--configs 48] [--json OUT].

The campaign of a hundred problems with made-up times: a build takes about `--build-seconds` on one of `--builders`
cores, a measurement `--gpu-seconds`, a problem's first `--setup-seconds` more, a final `--final-seconds`. What the
driver itself computes takes its CPU time. Needs `gemmtune[triton]`, and no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from heapq import heapify, heappop, heappush
from pathlib import Path

from rehearsal import HERE

from gemmtune.engine.campaign import scheduler, session
from gemmtune.engine.campaign.fleet import Finished
from gemmtune.engine.campaign.plan import Plan, read_plan
from gemmtune.engine.campaign.site import measured_terms
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final, Finalist
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

SPACES = ("aten", "triton_mm")
WHERE, WHEN = "virtual/gpu0", "2026-11-22T00:00:00+00:00"


class VirtualFleet:
    """Builders and one GPU, on a clock that runs as the driver computes and jumps where it waits."""

    evidence = Evidence.MEASURED
    parallel = 1
    settles = True

    def __init__(self, given: argparse.Namespace) -> None:
        self._given = given
        toolchains = {name: registry.space(name).toolchain() for name in SPACES}
        self._terms = measured_terms(toolchains, registry.objective("latency").protocol)
        self._draw = random.Random(0)
        self._builders = [0.0] * given.builders
        heapify(self._builders)
        self._built: list[tuple[float, int, float, Finished]] = []
        self._timed: list[tuple[float, int, Finished]] = []
        self._seen: set[Problem] = set()
        self._number = 0
        self._gpu_free = 0.0
        self.build_seconds = self.gpu_seconds = self.seconds = 0.0
        self.toolchain, self.protocol = self._terms.toolchain, self._terms.protocol
        self._computed = time.process_time()

    def submit(self, task: Task, config: Config) -> None:
        self.tick()
        seconds = 0.0 if task.space == "aten" else self._given.build_seconds * self._draw.uniform(0.6, 1.4)
        begins = max(self.seconds, heappop(self._builders))
        heappush(self._builders, begins + seconds)
        self.build_seconds += seconds
        takes = self._given.gpu_seconds * self._draw.uniform(0.6, 1.4)
        if task.problem not in self._seen:
            self._seen.add(task.problem)
            takes += self._given.setup_seconds
        self._put(begins + seconds, takes, self._measurement(task, config))

    def settle(self, candidates: Sequence[tuple[Task, Config]]) -> None:
        self.tick()
        times = sorted((made_up_ns(task, config), number) for number, (task, config) in enumerate(candidates))
        finalists = []
        for time_ns, number in times:
            task, config = candidates[number]
            behind = time_ns / times[0][0] - 1
            interval = (behind - 0.005, behind + 0.005) if finalists else (0.0, 0.0)
            estimate = Estimate(time_ns, 0.995 * time_ns, 1.005 * time_ns)
            finalists.append(Finalist(task, config, self.toolchain(task), estimate, (time_ns,) * 64, interval))
        self._put(self.seconds, self._given.final_seconds, Final(tuple(finalists), self.protocol(task), WHERE, WHEN))

    def collect(self, timeout_seconds: float) -> list[Finished]:
        self.tick()
        until = self.seconds + timeout_seconds
        found: list[Finished] = []
        while done := self._done(self.seconds if found else until):
            self.seconds = max(self.seconds, done[0])
            found.append(done[-1])
        if not found:
            self.seconds = until
        return found

    def _done(self, until: float) -> tuple[float, int, Finished] | None:
        """What the GPU is done with next, if that is so soon."""
        while not self._timed and self._built:
            ready, _, takes, result = heappop(self._built)
            self._gpu_free = max(self._gpu_free, ready) + takes
            self.gpu_seconds += takes
            heappush(self._timed, (self._gpu_free, self._number, result))
            self._number += 1
        return heappop(self._timed) if self._timed and self._timed[0][0] <= until else None

    def notices(self) -> list[str]:
        return []

    def close(self) -> None:
        """Nothing to end."""

    def tick(self) -> None:
        """The driver has computed since the last time."""
        now = time.process_time()
        self.seconds += now - self._computed
        self._computed = now

    def _put(self, ready: float, takes: float, result: Finished) -> None:
        heappush(self._built, (ready, self._number, takes, result))
        self._number += 1

    def _measurement(self, task: Task, config: Config) -> Measurement:
        time_ns = made_up_ns(task, config)
        return Measurement(
            task,
            config,
            Status.OK,
            self.evidence,
            self.protocol(task),
            self.toolchain(task),
            WHERE,
            WHEN,
            samples_ns=(time_ns,) * 20,
            estimate=Estimate(time_ns, 0.99 * time_ns, 1.01 * time_ns),
        )


def made_up_ns(task: Task, config: Config) -> float:
    """A time with one valley: whole waves, a middling tile, and a hundredth that is the config's own."""
    problem, device = task.problem, task.device
    least = max(problem.flops / 600e3, problem.min_bytes / device.memory_bandwidth_gb_s)
    if task.space == "aten":
        return 1.2 * least
    m, n, k, stages = (config.integer(name) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_stages"))
    waves = -(-problem.m // m) * -(-problem.n // n) / device.sm_count
    off = abs(math.log2(k / 64)) + abs(stages - 4) / 2 + abs(math.log2(m * n / 2**14)) / 2
    return least * (math.ceil(waves) / waves) ** 0.3 * (1 + 0.1 * off + 0.01 * random.Random(config.digest).random())


class Nobody:
    """Watches nothing."""

    def __getattr__(self, name):
        return lambda *args, **named: None


def campaign(given: argparse.Namespace, configs: int) -> dict[str, float]:
    """The whole of it, with so many configs in work for the one worker."""
    scheduler._CONFIGS_A_WORKER = configs
    problems = read_plan(HERE / "campaign.toml").problems[:: 100 // given.problems][: given.problems]
    plan = Plan(problems=problems, budget=given.budget)
    device, fleet = catalogue.device("H200"), VirtualFleet(given)
    with tempfile.TemporaryDirectory() as folder, closing(fleet), Database.open(f"{folder}/m.db") as store:
        session.execute(plan, device, session.measured_searches(plan, device), fleet, store, Nobody())
        fleet.tick()
    return {
        "problems": len(problems),
        "configs in work": configs,
        "seconds": round(fleet.seconds, 1),
        "builders busy": round(fleet.build_seconds / given.builders / fleet.seconds, 3),
        "GPU busy": round(fleet.gpu_seconds / fleet.seconds, 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--configs", type=int, nargs="+", default=[16, 32, 48, 64, 96], help="in work at a time")
    parser.add_argument("--problems", type=int, default=100, help="of the hundred, evenly taken")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--builders", type=int, default=15)
    parser.add_argument("--build-seconds", type=float, default=0.5)
    parser.add_argument("--gpu-seconds", type=float, default=0.02)
    parser.add_argument("--setup-seconds", type=float, default=0.12)
    parser.add_argument("--final-seconds", type=float, default=0.2)
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    results = []
    for configs in given.configs:
        results.append(campaign(given, configs))
        print(json.dumps(results[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
