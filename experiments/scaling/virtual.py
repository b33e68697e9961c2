"""Measures how busy a campaign keeps builders, on a virtual clock.

Usage: virtual.py --gpus 1 2 4 [--plan FILE] [--json FILE]

The driver, sampler, database, executor and dispatchers are real. Instead of processes there are 15 builders and a
worker per GPU that take made-up times. The clock runs as the driver computes, and jumps where it waits. A builder's
next job begins when the driver sends it, a worker's at once if the driver has sent it ahead. `--message-seconds` adds
the cost of a message. The campaign is that of run.py, or the problems of a campaign file. Needs `gemmtune[triton]`,
and no GPU.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import tempfile
import time
from collections import Counter, deque
from contextlib import closing
from functools import partial
from itertools import pairwise, product
from pathlib import Path

from run import PROBLEMS

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.measured_backend import measured_backend
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.plan_file import read_plan
from gemmtune.engine.execution.dispatcher import Dispatcher
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.execution.workers import measured_provenance, problem_of
from gemmtune.engine.measure.jobs import FinalistReading, FinalJob, FinalReading, Reading
from gemmtune.engine.processes.process_pool import Outcome
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact, Resources, Toolchain
from gemmtune.engine.records.measurement import DeviceState, Estimate, ReferenceLevel, Status
from gemmtune.engine.scheduling import scheduler
from gemmtune.engine.scheduling.callbacks import Callback
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database

BUILDERS_A_GPU = 15
STATE = DeviceState(sm_clock_mhz=1980, memory_clock_mhz=3201, temperature_c=40, power_mw=100_000)
MADE_UP = Toolchain((("made up", "1"),))


class Clock:
    """Virtual time, and the driver's use of it."""

    def __init__(self, slower: float) -> None:
        self.seconds, self.computed, self._slower = 0.0, 0.0, slower
        self.waits: list[tuple[float, float]] = []
        self._since = time.process_time()

    def tick(self, more: float = 0.0) -> None:
        """Add the CPU time since the last call, and `more` that is not computed here."""
        now = time.process_time()
        passed = self._slower * (now - self._since + more)
        self.computed += passed
        self.seconds += passed
        self._since = now

    def wait(self, until: float) -> None:
        """Let the driver wait until a time."""
        self.tick()
        if until > self.seconds:
            self.waits.append((self.seconds, until))
            self.seconds = until


class Process:
    """A process with its jobs."""

    def __init__(self, free: float) -> None:
        self.free = free
        self.jobs: deque[tuple[float, object, object]] = deque()


class VirtualWorker:
    """Processes of one pool, which get their jobs as from `ProcessPool`."""

    def __init__(self, clock, size, run, *, starts, ahead, message_seconds) -> None:
        self.size, self._clock, self._run, self._message = size, clock, run, message_seconds
        self._most = 2 if ahead else 1
        self._processes = [Process(starts) for _ in range(size)]
        self._queue: deque[object] = deque()
        self.busy: list[tuple[float, float]] = []

    def submit(self, job) -> None:
        self._clock.tick()
        self._queue.append(job)
        self._dispatch()

    def collect(self):
        outcomes = []
        if not self._queue and not any(process.jobs for process in self._processes):
            return outcomes  # an idle worker's share of the clock would be the most of what the driver seems to take
        self._clock.tick()
        for process in self._processes:
            while process.jobs and process.jobs[0][0] <= self._clock.seconds:
                _, job, result = process.jobs.popleft()
                outcomes.append(Outcome(job, result))
                self._clock.tick(self._message)
        self._dispatch()
        return outcomes

    def next(self) -> float:
        return min((process.jobs[0][0] for process in self._processes if process.jobs), default=math.inf)

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def _dispatch(self) -> None:
        for most in range(1, self._most + 1):
            for process in self._processes:
                if self._queue and len(process.jobs) < most:
                    job = self._queue.popleft()
                    seconds, result = self._run(job)
                    begins = max(self._clock.seconds, process.free)
                    process.free = begins + seconds
                    process.jobs.append((process.free, job, result))
                    self.busy.append((begins, process.free))


class VirtualMachine:
    """Builders and GPU workers on one clock."""

    def __init__(self, given: argparse.Namespace, clock: Clock, gpus: int) -> None:
        self._clock, self._given, self._draw, self._seen = clock, given, random.Random(0), set()
        clock.tick()
        opened = clock.seconds
        cost = {"message_seconds": given.message_seconds}
        self.cpu = VirtualWorker(
            clock, BUILDERS_A_GPU * gpus, self._build, starts=opened + given.start_seconds, ahead=False, **cost
        )
        self.gpus = {
            f"gpu{i}": VirtualWorker(
                clock, 1, partial(self._measure, f"gpu{i}"), starts=opened + given.start_seconds, ahead=True, **cost
            )
            for i in range(gpus)
        }
        self.builders, self.workers = Dispatcher({"cpu": self.cpu}), Dispatcher(self.gpus, affinity=problem_of)

    def wait(self, timeout_seconds: float) -> None:
        self._clock.tick()
        timeout = self._clock.seconds + timeout_seconds
        until = min(timeout, *(worker.next() for worker in (self.cpu, *self.gpus.values())))
        if timeout_seconds == scheduler._THINKING_SECONDS:  # processes of searches are real, and need the time
            time.sleep(max(until - self._clock.seconds, 0.0))
        self._clock.wait(until)

    def close(self) -> None:
        """Do nothing: there are no processes."""

    def _build(self, job):
        draw = random.Random(f"{job.task.key}/{job.config.digest}")
        seconds = self._given.build_seconds * draw.uniform(0.6, 1.4) * (3 if draw.random() < 0.02 else 1) / 1.04
        seconds = 0.01 if job.task.space == "aten" else seconds
        key = f"{job.task.key}/{job.config.digest}"
        resources = Resources(128, 60_000, 0, 128)
        return seconds, Artifact(key, job.task.space, "", "", (("entry", "k"),), resources, seconds, MADE_UP)

    def _measure(self, board, job):
        if isinstance(job, FinalJob):
            estimate = Estimate(1e4, 9.9e3, 1.01e4)
            numbers = range(len(job.finalists))
            return self._given.final_seconds, FinalReading(
                tuple(FinalistReading(n, estimate, (1e4,) * 48, (0.001 * n, 0.01 * n)) for n in numbers)
            )
        draw = random.Random(job.config.digest)
        time_ns = 1e4 * (1 + 3 * draw.random())
        samples = tuple(time_ns * draw.uniform(0.99, 1.01) for _ in range(12))
        level = ReferenceLevel("made up", board, 1e4)
        estimate = Estimate(time_ns, 0.99 * time_ns, 1.01 * time_ns, level)
        seconds = self._given.gpu_seconds * self._draw.uniform(0.6, 1.4)
        if job.task.problem not in self._seen:
            self._seen.add(job.task.problem)
            seconds += self._given.setup_seconds
        return seconds, Reading(Status.OK, "", samples, estimate, error_norm=1e-3, before=STATE, after=STATE)


class Notes(Callback):
    """Keeps the ends of searches and the number of configs in work."""

    def __init__(self, clock: Clock, executor: BuildMeasurePipeline) -> None:
        self.clock, self.executor = clock, executor
        self.ends: list[float] = []
        self.measured_at: list[float] = []
        self.under_way: list[tuple[float, int]] = []

    def on_measurement(self, measurement, score, *, known) -> None:
        self.measured_at.append(self.clock.seconds)

    def on_search_end(self, search, reason: str) -> None:
        if search.task.space != "aten":
            self.ends.append(self.clock.seconds)

    def on_load(self, load, seconds_left) -> None:
        self.under_way.append((self.clock.seconds, load.queued + load.building + load.timing))


def campaign(given: argparse.Namespace, gpus: int, configs: int) -> dict[str, object]:
    """Run the campaign with so many configs in work per GPU; return its account."""
    scheduler._CONFIGS_PER_WORKER = configs
    named = read_plan(given.plan) if given.plan else Plan(problems=PROBLEMS)
    plan = Plan(problems=named.problems, spaces=named.spaces, budget=given.budget, batch=given.batch)
    device, clock = catalogue.device("H200"), Clock(given.slower)
    toolchains = {name: registry.space(name).toolchain() for name in ("aten", *plan.spaces)}
    provenance = measured_provenance(toolchains, registry.objective("latency").protocol)
    machines: list[VirtualMachine] = []

    def opened() -> VirtualMachine:
        machines.append(VirtualMachine(given, clock, gpus))
        return machines[0]

    executor = BuildMeasurePipeline(provenance, opened, gpus, evenly=False)
    backend = measured_backend(plan, device, lambda spaces: executor, search_processes=given.search_processes)
    with tempfile.TemporaryDirectory() as folder, closing(backend), Database.open(f"{folder}/m.db") as store:
        notes = Notes(clock, executor)
        clock.tick()
        clock.computed = clock.seconds = 0.0
        execute(plan, backend, store, [notes])
        clock.tick()
    return {"configs in work a GPU": configs} | account(machines[0], clock, notes, gpus)


def account(machine: VirtualMachine, clock: Clock, notes: Notes, gpus: int) -> dict[str, object]:
    """Return how the builders spent their time."""
    builders = BUILDERS_A_GPU * gpus
    first, last = min(begins for begins, _ in machine.cpu.busy), max(ends for _, ends in machine.cpu.busy)
    tail, searched = min(notes.ends), max(notes.ends)
    events = [(at, 1) for at, _ in machine.cpu.busy] + [(at, -1) for _, at in machine.cpu.busy]
    marks = {0.0, clock.seconds, first, tail, searched}
    marks |= {at for at, _ in events} | {at for span in clock.waits for at in span}
    marks |= {float(at) for at in range(math.ceil(clock.seconds))}
    changes, waits = Counter(), deque(clock.waits)
    for at, by in events:
        changes[at] += by
    idle, timeline, busy = Counter(), Counter(), 0
    ordered = sorted(marks)
    for at, until in pairwise(ordered):
        busy += changes[at]
        while waits and waits[0][1] <= at:
            waits.popleft()
        waited = bool(waits) and waits[0][0] <= at
        if at < first:
            cause = "start"
        elif at >= searched:
            cause = "finals and table"
        elif at >= tail:
            cause = "tail: some tasks are done"
        else:
            cause = "all that was asked is on its way" if waited else "the driver computes"
        idle[cause] += (builders - busy) * (until - at)
        timeline[int(at)] += busy * (until - at) / builders
    total = builders * clock.seconds
    ways = Counter(), Counter()
    for at, number in notes.under_way:
        ways[0][int(at)] += number
        ways[1][int(at)] += 1
    build = sum(ends - begins for begins, ends in machine.cpu.busy)
    return {
        "gpus": gpus,
        "builders": builders,
        "results": len(notes.measured_at),
        "seconds": round(clock.seconds, 1),
        "builders busy": round(build / total, 3),
        "builders busy from the first to the last build": round(build / builders / (last - first), 3),
        "idle": {cause: round(seconds / total, 3) for cause, seconds in idle.most_common()},
        "seconds until": {
            "first build": round(first, 1),
            "first task done": round(tail, 1),
            "last": round(searched, 1),
        },
        "driver computes": round(clock.computed, 1),
        "driver ms a result": round(1e3 * clock.computed / len(notes.measured_at), 2),
        "GPUs busy": [
            round(sum(ends - begins for begins, ends in gpu.busy) / clock.seconds, 2) for gpu in machine.gpus.values()
        ],
        "busy, each second": [round(timeline[at], 2) for at in range(math.ceil(clock.seconds))],
        "on their way, each second": [
            round(ways[0][at] / max(ways[1][at], 1)) for at in range(math.ceil(clock.seconds))
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--configs", type=int, nargs="+", default=[scheduler._CONFIGS_PER_WORKER], help="in work a GPU")
    parser.add_argument("--plan", type=Path, help="campaign file: its problems and spaces (default: those of run.py)")
    parser.add_argument("--budget", type=int, default=256)
    parser.add_argument("--batch", type=int, default=8, help="configs that the sampler is asked for at once")
    parser.add_argument("--build-seconds", type=float, default=0.5, help="mean; 0.6 to 1.4 times, and of 2 %% thrice")
    parser.add_argument("--gpu-seconds", type=float, default=0.008)
    parser.add_argument("--setup-seconds", type=float, default=0.12)
    parser.add_argument("--final-seconds", type=float, default=0.2)
    parser.add_argument("--start-seconds", type=float, default=4.0, help="of the processes")
    parser.add_argument("--message-seconds", type=float, default=0.0005, help="of the driver, each job")
    parser.add_argument("--slower", type=float, default=1.0, help="times as much CPU as the driver takes here")
    parser.add_argument("--search-processes", type=int, help="processes of searches (default: as in a campaign)")
    parser.add_argument("--json", type=Path, help="file for the results")
    given = parser.parse_args()
    results = []
    for gpus, configs in product(given.gpus, given.configs):
        results.append(json.dumps(campaign(given, gpus, configs)))
        print(results[-1], flush=True)
    if given.json:
        given.json.write_text("[\n" + ",\n".join(results) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main()
