"""Kills whatever takes part in a campaign, again and again, and compares what is left with an undisturbed one.

Usage: run.py --kills N [--seed S] [--budget N] [--seconds S] [--database postgresql+psycopg://...]
              [--json FILE]
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
"""What is killed, and how often beside the others."""
ACTORS = {"worker": b"ray::Worker", "builder": b"ray::Builder"}
PATIENCE_SECONDS = 600.0
"""Of a campaign that nothing is killed of any more."""


def main() -> int:
    given = arguments()
    chance = random.Random(given.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gemmtune-chaos-") as folder:
        address = start_ray()
        site = Site(Path(folder), address, given)
        calm = site.campaign("calm", str(Path(folder) / "calm.db"))
        calm.start()
        if calm.process.wait(PATIENCE_SECONDS) != 0:
            sys.exit((Path(folder) / "calm.log").read_text())
        expected = calm.rows()
        report = {"kills": Counter(), "rounds": 0, "measurements": len(expected), "wrong": []}
        while sum(report["kills"].values()) < given.kills:
            number = report["rounds"]
            disturbed = site.campaign(f"round{number}", site.database(number))
            disturb(disturbed, chance, given.kills - sum(report["kills"].values()), report)
            report["rounds"] += 1
            report["wrong"] += compared(calm, disturbed)
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
    parser.add_argument("--budget", type=int, default=200, help="evaluations a task; there are ten")
    parser.add_argument("--seconds", type=float, default=0.02, help="of one build, and of one measurement")
    parser.add_argument("--pause", type=float, default=1.0, help="mean time between two kills, in seconds")
    parser.add_argument("--database", help="a PostgreSQL server whose connections are killed, too")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def start_ray() -> str:
    """A Ray of two cores that ends with this process, and nobody else's to use; its address."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    import ray

    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    return ray.get_runtime_context().gcs_address


class Site:
    """What the campaigns of this run share."""

    def __init__(self, folder: Path, address: str, given: argparse.Namespace) -> None:
        self.folder, self.given = folder, given
        self.environment = os.environ | {"RAY_ADDRESS": address}

    def campaign(self, name: str, database: str) -> Campaign:
        return Campaign(self, name, database)

    def database(self, number: int) -> str:
        """A fresh one."""
        if not self.given.database:
            return str(self.folder / f"round{number}.db")
        import psycopg

        server = self.given.database.replace("+psycopg", "", 1)
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS chaos_{number}")
            connection.execute(f"CREATE DATABASE chaos_{number}")
        return f"{self.given.database.rpartition('/')[0]}/chaos_{number}"


class Campaign:
    """The driver's process, and what its database holds."""

    def __init__(self, site: Site, name: str, database: str) -> None:
        self.site, self.name, self.database = site, name, database
        self.table = site.folder / name / "table.json"
        self.table.parent.mkdir()
        self.early: set[tuple] = set()

    def start(self) -> None:
        terms = ["--budget", str(self.site.given.budget), "--seconds", str(self.site.given.seconds)]
        command = [str(Path(__file__).with_name("campaign.py")), self.database, str(self.table), *terms]
        with (self.site.folder / f"{self.name}.log").open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", *command], env=self.site.environment, stdout=log, stderr=subprocess.STDOUT
            )

    def rows(self) -> list[tuple]:
        """Its measurements, in an order of their own."""
        try:
            with Database.open(self.database, create=False) as store:
                return sorted(
                    (m.task.key, m.config.json, m.status, m.samples_ns, m.created_at, m.worker)
                    for m in store.measurements()
                )
        except GemmtuneError:  # there is none yet
            return []

    def measured(self) -> int:
        """How many there are."""
        try:
            with Database.open(self.database, create=False) as store:
                return len(store)
        except GemmtuneError:
            return 0

    def actors(self, kind: str) -> list[int]:
        """Their processes; none but those of this run's Ray."""
        own = descendants(os.getpid())
        return [pid for pid in own if command(pid).startswith(ACTORS[kind])]

    def kill(self, kind: str, chance: random.Random) -> bool:
        """Kill one of a kind; False where there is none at the moment."""
        if kind == "connection":
            return self.cut()
        victims = self.actors("worker" if kind == "driver" else kind)
        if victims and kind == "driver":  # without workers it has not begun, and nothing would ever go on
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
        """End every connection to the campaign's database."""
        import psycopg

        name = self.database.rpartition("/")[2]
        with psycopg.connect(self.site.given.database.replace("+psycopg", "", 1), autocommit=True) as connection:
            ended = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
            )
            return bool(ended.fetchall())


def disturb(campaign: Campaign, chance: random.Random, kills: int, report: dict) -> None:
    """Run a campaign to its end, with at most so many kills on the way: of what none has lost yet, then by chance.

    It measures something between two kills: faster ones than actors start would only show that it gives up.
    """
    kinds = KINDS | ({"connection": 2} if campaign.site.given.database else {})
    first = chance.sample(missing := [kind for kind in kinds if not report["kills"][kind]], len(missing))
    measured = 0
    campaign.start()
    until = time.monotonic() + PATIENCE_SECONDS
    while campaign.process.poll() is None and time.monotonic() < until:
        time.sleep(chance.uniform(0, 2 * campaign.site.given.pause))
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
        report["wrong"].append(
            f"{campaign.name}: {(campaign.site.folder / f'{campaign.name}.log').read_text()[-2000:]}"
        )


def compared(calm: Campaign, disturbed: Campaign) -> list[str]:
    """What is not as it is without kills."""
    wrong = []
    expected, held = calm.rows(), disturbed.rows()
    keys = Counter(row[:2] for row in held)
    if doubled := [key for key, count in keys.items() if count > 1]:
        wrong.append(f"{disturbed.name}: measured more than once: {doubled[:3]}")
    if lost := disturbed.early - set(held):
        wrong.append(f"{disturbed.name}: in the database before a driver was killed, and not after: {sorted(lost)[:3]}")
    if differ := {row[:4] for row in expected} ^ {row[:4] for row in held}:
        wrong.append(f"{disturbed.name}: {len(differ)} measurements differ: {sorted(differ)[:4]}")
    if not disturbed.table.exists() or rows_of(disturbed.table) != rows_of(calm.table):
        wrong.append(f"{disturbed.name}: the table is another one")
    return wrong


def rows_of(table: Path) -> list:
    return json.loads(table.read_text())["rows"]


def descendants(pid: int) -> list[int]:
    """The processes below one."""
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
