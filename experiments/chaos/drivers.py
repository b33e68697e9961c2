"""Kills drivers that share a PostgreSQL server, and the server, at random; compares with campaigns that ran alone.

Usage: drivers.py --kills N [--drivers 3] [--spans 0-10 2-8 ...] [--seed S] [--budget N] [--seconds S] [--pause S]
                  [--json FILE]

Each driver searches the recorded problems of its span, and a replayed evaluation takes S seconds of one of its four
workers. Without kills this measures how drivers share the work: evaluations per config, and the wall time of one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import psycopg

from gemmtune.engine.campaign.execute import execute
from gemmtune.engine.campaign.plan import Plan
from gemmtune.engine.campaign.replayed_backend import completed, read_all, replayed_backend
from gemmtune.engine.execution.replay import ReplayExecutor
from gemmtune.engine.report.progress.display import NoticePrinter
from gemmtune.engine.report.progress.registered import registered
from gemmtune.engine.report.progress.state import CampaignState
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import embedded
from gemmtune.engine.tables.table_file import write_table

RUNNING_POSTGRES = runpy.run_path(str(Path(__file__).parents[2] / "tests/engine/conftest.py"))["running_postgres"]
KINDS = {"driver": 6, "server": 2, "backend": 2}
"""Relative frequency of each kind of kill."""
PATIENCE_SECONDS = 300.0
"""Longest run time of a round after its last kill."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drive", nargs=2, metavar=("DATABASE", "TABLE"), help="be one driver")
    parser.add_argument("--kills", type=int, default=0)
    parser.add_argument("--drivers", type=int, default=3)
    parser.add_argument("--spans", nargs="*", default=[])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=0.04)
    parser.add_argument("--pause", type=float, default=2.0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    given.spans = given.spans or ["0-10"] * given.drivers
    if given.drive:
        drive(*given.drive, given)
        return 0
    chance, began = random.Random(given.seed), time.monotonic()
    report = {"drivers": given.spans, "kills": Counter(), "rounds": [], "wrong": []}
    with tempfile.TemporaryDirectory(prefix="gemmtune-drivers-") as folder, RUNNING_POSTGRES() as running:
        alone = {span: Driver(Path(folder), f"alone-{span}", span, given, 0.0) for span in dict.fromkeys(given.spans)}
        for each in alone.values():
            each.start(f"{folder}/{each.name}.db")
            each.process.wait(PATIENCE_SECONDS)
        while not report["rounds"] or sum(report["kills"].values()) < given.kills:
            report["rounds"].append(disturbed(Path(folder), running, alone, chance, given, report))
        if not given.kills:
            report["alone_seconds"] = timed_alone(Path(folder), running, given)
    report["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(report, indent=2)
    if given.json:
        given.json.write_text(text + "\n")
    print(text)
    return 1 if report["wrong"] else 0


class SlowExecutor(ReplayExecutor):
    """Answers from recordings as fast as four workers would, and prints what it is asked to evaluate."""

    parallel = 4
    seconds = 0.0

    def submit(self, task, config):
        sys.stdout.write(f"{task.key} {config.digest}\n")
        sys.stdout.flush()
        super().submit(task, config)

    def collect(self, timeout_seconds):
        finished, self._finished = self._finished[:4], self._finished[4:]
        time.sleep(self.seconds * len(finished) / self.parallel)
        return finished


def drive(database: str, table: str, given: argparse.Namespace) -> None:
    """Run one campaign to its end; it goes on where it was."""
    first, last = map(int, given.spans[0].split("-"))
    plan = Plan(sampler="evolution", budget=given.budget, batch=8, seed=7)
    problems = [each.problem for each in read_all(embedded("aten"))][first:last]
    landscapes = completed(read_all(embedded(), frozenset(problems)), plan.spaces, None)
    executor = SlowExecutor(landscapes)
    executor.seconds = given.seconds
    backend, state, printed = (
        replayed_backend(plan, landscapes, executor),
        CampaignState("ns", time.monotonic),
        NoticePrinter(),
    )
    with (
        closing(backend),
        Database.open(database) as store,
        registered(store, plan, state, [printed], name=given.spans[0], location="here", price=None) as follower,
    ):
        found = execute(plan, backend, store, [state, printed, follower], follower.orders)
    write_table(Path(table), found.table)


class Driver:
    """A campaign in a process of its own, which is started again until it ends in order."""

    def __init__(self, folder: Path, name: str, span: str, given: argparse.Namespace, seconds: float) -> None:
        self.name, self.span = name, span
        self.table, self.log = folder / f"{name}.json", folder / f"{name}.txt"
        self.terms = ["--spans", span, "--budget", str(given.budget), "--seconds", str(seconds)]
        self.log.touch()

    def start(self, database: str) -> None:
        self.database = database
        command = [sys.executable, "-P", __file__, "--drive", database, str(self.table), *self.terms]
        with self.log.open("a") as out, self.log.with_suffix(".errors").open("a") as errors:
            self.process = subprocess.Popen(command, stdout=out, stderr=errors)

    @property
    def submitted(self) -> list[str]:
        return self.log.read_text().splitlines()

    def is_over(self) -> bool:
        """Whether it ended in order; one that found no server when it began is started again."""
        if self.process.poll() in (None, 0):
            return self.process.poll() == 0
        self.start(self.database)
        return False


def disturbed(folder: Path, running, alone: dict, chance: random.Random, given, report: dict) -> dict:
    """Run drivers on a fresh database to their ends, with kills, and compare; return what the round took."""
    number = len(report["rounds"])
    url = running.new_database()
    Database.open(url).close()
    drivers = [Driver(folder, f"{number}-{at}", span, given, given.seconds) for at, span in enumerate(given.spans)]
    began = time.monotonic()
    for driver in drivers:
        driver.start(url)
    kept: list[tuple[set[str], list[int]]] = []  # what was stored before a kill, and how much each had submitted then
    at, until = began + chance.uniform(1, 2 * given.pause), began + PATIENCE_SECONDS
    while sum(driver.is_over() for driver in drivers) < len(drivers) and time.monotonic() < until:
        time.sleep(0.05)
        if time.monotonic() < at or sum(report["kills"].values()) >= given.kills:
            continue
        at = time.monotonic() + chance.uniform(0, 2 * given.pause)
        stored = keys(url)
        kept.append((stored, [len(driver.submitted) for driver in drivers]))
        kind = chance.choices(list(KINDS), list(KINDS.values()))[0]
        if kill_backend(running, url, chance) if kind == "backend" else kill(kind, running, drivers, chance):
            report["kills"][kind] += 1
            until = time.monotonic() + PATIENCE_SECONDS
    seconds = time.monotonic() - began
    lines = [driver.submitted for driver in drivers]
    distinct = {line for of in lines for line in of}
    again = {
        line
        for stored, sizes in kept
        for of, size in zip(lines, sizes, strict=True)
        for line in of[size:]
        if line in stored
    }
    wrong = [
        f"stuck: {driver.name}, {driver.log.with_suffix('.errors').read_text()[-500:]}"
        for driver in drivers
        if not driver.is_over()
    ]
    wrong += [f"evaluated although it was stored: {sorted(again)[:3]}"] if again else []
    wrong += [
        f"{driver.name}: another table"
        for driver in drivers
        if driver.table.read_bytes() != alone[driver.span].table.read_bytes()
    ]
    expected = {row for each in alone.values() for row in rows(f"{folder}/{each.name}.db")}
    wrong += ["other measurements"] if sorted(expected) != sorted(rows(url)) else []
    owners = [owner for (owner,) in running.execute("SELECT owner FROM claims", url)]  # of killed ones until leases end
    left = sum(f" process {driver.process.pid} " in owner for driver in drivers for owner in owners)
    wrong += [f"{left} claims left by drivers that ended in order"] if left else []
    report["wrong"] += [f"round {number}: {each}" for each in wrong]
    for driver in drivers:
        driver.process.kill()
    return {"evaluations": sum(map(len, lines)), "distinct": len(distinct), "seconds": round(seconds, 1)}


def timed_alone(folder: Path, running, given: argparse.Namespace) -> float:
    """Return the seconds that one driver of all problems takes alone."""
    driver, began = Driver(folder, "timed", "0-10", given, given.seconds), time.monotonic()
    driver.start(running.new_database())
    driver.process.wait(PATIENCE_SECONDS)
    return round(time.monotonic() - began, 1)


def kill(kind: str, running, drivers: list[Driver], chance: random.Random) -> bool:
    """Kill a driver that runs, or the server, which starts again up to three seconds later."""
    if kind == "server":
        running.stop()
        time.sleep(chance.uniform(0, 3))
        running.start()
        return True
    alive = [driver for driver in drivers if driver.process.poll() is None and driver.submitted]
    if alive:
        victim = chance.choice(alive)
        victim.process.send_signal(signal.SIGKILL)
        victim.process.wait()
    return bool(alive)


def keys(url: str) -> set[str]:
    with Database.open(url, read_only=True) as store:
        return {f"{m.task.key} {m.config.digest}" for m in store.measurements()}


def rows(database: str) -> list[tuple]:
    with Database.open(database, read_only=True) as store:
        return [(m.task.key, m.config.json, m.status, m.samples_ns) for m in store.measurements()]


def kill_backend(running, url: str, chance: random.Random) -> bool:
    """Kill a process of the server that serves a driver: the server ends all others and recovers."""
    name = url.rpartition("/")[2]
    served = running.execute(f"SELECT pid FROM pg_stat_activity WHERE datname = '{name}'")
    if served:
        os.kill(chance.choice(served)[0], signal.SIGKILL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                running.execute("SELECT 1")
                break
            except psycopg.OperationalError:
                time.sleep(0.1)
    return bool(served)


if __name__ == "__main__":
    sys.exit(main())
