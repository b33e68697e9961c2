"""Kills the processes of a campaign at random, and compares the result with that of a campaign without kills.

Usage: run.py --kills N [--seed S] [--problems N] [--budget N] [--batch N] [--seconds S] [--database postgresql+psycopg://...]
              [--actors WORKERS BUILDERS] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from gemmtune.engine.records.errors import GemmtuneError
from gemmtune.engine.store.database import Database

KINDS = {"worker": 5, "builder": 3, "driver": 1}
"""Relative frequency of each kind of kill."""
ACTORS = {"worker": b"ray::Worker", "builder": b"ray::Builder"}
PATIENCE_SECONDS = 600.0
"""Longest run time of a campaign after its last kill."""


def main() -> int:
    given = arguments()
    chance = random.Random(given.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gemmtune-chaos-") as folder:
        undisturbed = Run(Path(folder), {}, given).campaign("undisturbed", str(Path(folder) / "undisturbed.db"))
        undisturbed.start()
        if undisturbed.process.wait(PATIENCE_SECONDS) != 0:
            sys.exit((Path(folder) / "undisturbed.log").read_text())
        expected = undisturbed.rows()
        run = Run(Path(folder), {"RAY_ADDRESS": start_ray()}, given)
        report = {"kills": Counter(), "rounds": 0, "measurements": len(expected), "wrong": []}
        while sum(report["kills"].values()) < given.kills:
            number = report["rounds"]
            disturbed = run.campaign(f"round{number}", run.database(number))
            disturb(disturbed, chance, given.kills - sum(report["kills"].values()), report)
            report["rounds"] += 1
            report["wrong"] += compared(undisturbed, disturbed)
    report["seconds"] = round(time.monotonic() - began, 1)
    text = json.dumps(report, indent=2)
    if given.json:
        given.json.write_text(text + "\n")
    print(text)
    return 1 if report["wrong"] else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=200, help="evaluations per problem")
    parser.add_argument("--batch", type=int, default=8, help="evaluations that a search asks for at once")
    parser.add_argument("--problems", type=int, default=10, help="the first of the ten recorded ones")
    parser.add_argument("--actors", type=int, nargs=2, default=(3, 2), metavar=("WORKERS", "BUILDERS"))
    parser.add_argument("--seconds", type=float, default=0.02, help="of one build, and of one measurement")
    parser.add_argument("--pause", type=float, default=1.0, help="mean time between two kills, in seconds")
    parser.add_argument("--database", help="a PostgreSQL server whose connections are killed, too")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def start_ray() -> str:
    """Start a Ray of two cores that only this run can use; return its address."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return ray.get_runtime_context().gcs_address


class Run:
    """The folder, cluster and database server that the campaigns share."""

    def __init__(self, folder: Path, environment: dict[str, str], given: argparse.Namespace) -> None:
        self.folder, self.given = folder, given
        self.environment = os.environ | environment

    def campaign(self, name: str, database: str) -> Campaign:
        return Campaign(self, name, database)

    def database(self, number: int) -> str:
        """Make an empty database and return its URL."""
        if not self.given.database:
            return str(self.folder / f"round{number}.db")
        import psycopg

        server = self.given.database.replace("+psycopg", "", 1)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS chaos_{number}")
            connection.execute(f"CREATE DATABASE chaos_{number}")
        return f"{self.given.database.rpartition('/')[0]}/chaos_{number}"


class Campaign:
    """The driver's process and its database."""

    def __init__(self, run: Run, name: str, database: str) -> None:
        self.run, self.name, self.database = run, name, database
        self.table = run.folder / name / "table.json"
        self.table.parent.mkdir()
        self.early: set[tuple] = set()

    def start(self) -> None:
        given = self.run.given
        terms = ["--budget", str(given.budget), "--seconds", str(given.seconds), "--problems", str(given.problems)]
        terms += ["--batch", str(given.batch), "--actors", *map(str, given.actors)]
        command = [str(Path(__file__).with_name("campaign.py")), self.database, str(self.table), *terms]
        with (self.run.folder / f"{self.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *command], env=self.run.environment, stdout=log, stderr=subprocess.STDOUT
            )

    def rows(self) -> list[tuple]:
        """Return the measurements, sorted."""
        try:
            with Database.open(self.database, read_only=True) as store:
                return sorted(
                    (m.task.key, m.config.json, m.status, m.samples_ns, m.created_at, m.worker)
                    for m in store.measurements()
                )
        except GemmtuneError:  # there is no database yet
            return []

    def measured(self) -> int:
        """Return the number of measurements."""
        try:
            with Database.open(self.database, read_only=True) as store:
                return len(store)
        except GemmtuneError:
            return 0

    def actors(self, kind: str) -> list[int]:
        """Return the processes of this run's actors of a kind."""
        own = descendants(os.getpid())
        return [pid for pid in own if command(pid).startswith(ACTORS[kind])]

    def kill(self, kind: str, chance: random.Random) -> bool:
        """Kill one process of a kind; return whether there was one."""
        if kind == "connection":
            return self.cut()
        victims = self.actors("worker" if kind == "driver" else kind)
        if victims and kind == "driver":  # a driver without workers has not begun
            victims = [self.process.pid]
        if not victims:
            return False
        try:
            os.kill(chance.choice(victims), signal.SIGKILL)
        except ProcessLookupError:
            return False
        if kind == "driver":
            self.process.wait()
            self.early |= set(self.rows())
            self.start()
        return True

    def cut(self) -> bool:
        """Cut every connection to the campaign's database; return whether there was one."""
        import psycopg

        name = self.database.rpartition("/")[2]
        with psycopg.connect(self.run.given.database.replace("+psycopg", "", 1), autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            return bool(ended.fetchall())


def disturb(campaign: Campaign, chance: random.Random, kills: int, report: dict) -> None:
    """Run a campaign to its end with at most `kills` kills: first of each kind that was not killed yet, then at random.

    The campaign measures something between two kills. Kills in faster succession only show that it gives up.
    """
    kinds = KINDS | ({"connection": 2} if campaign.run.given.database else {})
    first = chance.sample(missing := [kind for kind in kinds if not report["kills"][kind]], len(missing))
    measured = 0
    campaign.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while campaign.process.poll() is None and time.monotonic() < until:
        time.sleep(chance.uniform(0, 2 * campaign.run.given.pause))
        kind = first[-1] if first else chance.choices(list(kinds), list(kinds.values()))[0]
        if not kills or campaign.process.poll() is not None or campaign.measured() == measured:
            continue
        if campaign.kill(kind, chance):
            measured = campaign.measured()
            report["kills"][kind] += 1
            kills -= 1
            until = time.monotonic() + PATIENCE_SECONDS
            del first[-1:]
    if campaign.process.poll() != 0:
        campaign.process.kill()
        report["wrong"].append(f"{campaign.name}: {(campaign.run.folder / f'{campaign.name}.log').read_text()[-2000:]}")


def compared(undisturbed: Campaign, disturbed: Campaign) -> list[str]:
    """Return the differences from the campaign without kills."""
    wrong = []
    expected, held = undisturbed.rows(), disturbed.rows()
    keys = Counter(row[:2] for row in held)
    if doubled := [key for key, count in keys.items() if count > 1]:
        wrong.append(f"{disturbed.name}: measured more than once: {doubled[:3]}")
    if lost := disturbed.early - set(held):
        wrong.append(f"{disturbed.name}: in the database before a driver was killed, and not after: {sorted(lost)[:3]}")
    if differ := {row[:4] for row in expected} ^ {row[:4] for row in held}:
        wrong.append(f"{disturbed.name}: {len(differ)} measurements differ: {sorted(differ)[:4]}")
    if not disturbed.table.exists() or rows_of(disturbed.table) != rows_of(undisturbed.table):
        wrong.append(f"{disturbed.name}: the table is another one")
    return wrong


def rows_of(table: Path) -> list:
    return json.loads(table.read_text())["rows"]


def descendants(pid: int) -> list[int]:
    """Return the descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (FileNotFoundError, ProcessLookupError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, open_ends = [], [pid]
    while open_ends:
        below = children.get(open_ends.pop(), [])
        found += below
        open_ends += below
    return found


def command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


if __name__ == "__main__":
    sys.exit(main())
