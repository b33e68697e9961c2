"""Attack the files of a small campaign: kills, full disks, other users, and flipped bits.

Usage: attacks.py [--kills N] [--flips N] [--seed S] [--only ATTACK ...] [--json FILE], as root on Linux. Each command
runs in a fork of this process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import Engine, event

import gemmtune as gt
from gemmtune.engine.cli import main as gemmtune
from gemmtune.engine.tables.inductor import loader

PROBLEMS = ["--problem", "16x4096x4096:bf16:nt", "--problem", "1024x1280x3420:bf16:nt"]
TUNE = ["tune", *PROBLEMS, "--sampler", "random", "--budget", "12", "--no-report", "--out"]
LIMIT_SECONDS = 120
ATTACKS = ["kills", "instants", "full_disks", "together", "users", "flipped"]
GROUP, OWNER, OTHER = 7777, 65_001, 65_002
"""A group and two of its users."""


class Ended:
    """Exit status and output of a command."""

    def __init__(self, status: int, output: str) -> None:
        self.status, self.output = status, output

    @property
    def fault(self) -> str:
        """Broken promise, in words; empty for an answer, a kill, or one line and exit status 2."""
        if "Traceback" in self.output:
            return f"traceback: {self.output.strip().splitlines()[-1]}"
        if self.status not in (0, 1, 2, -signal.SIGKILL, -signal.SIGALRM):
            return f"exit status {self.status}: {self.output[-200:]}"
        if self.status == -signal.SIGALRM:
            return "hang"
        lines = [line for line in self.output.splitlines() if line.startswith("gemmtune: ")]
        return "" if self.status != 2 or len(lines) == 1 else f"{len(lines)} lines: {self.output[-200:]}"


def start(arguments: list[str], prepare: Callable[[], object] = lambda: None) -> Callable[[], Ended]:
    """Start a command in a fork; call the returned function to wait for its end."""
    with tempfile.NamedTemporaryFile(delete=False) as written:
        output = Path(written.name)
    output.chmod(0o666)
    child = os.fork()
    if child == 0:
        with output.open("wb") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        signal.alarm(LIMIT_SECONDS)
        sys.argv = ["gemmtune", *map(str, arguments)]
        status = 70
        try:
            prepare()
            gemmtune()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)

    def wait() -> Ended:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = output.read_text(errors="replace")
        output.unlink()
        return Ended(status, text)

    return wait


def run(*arguments: object, prepare: Callable[[], object] = lambda: None) -> Ended:
    return start([str(argument) for argument in arguments], prepare)()


def die_at(number: int) -> Callable[[], None]:
    """Return a function that has the process kill itself before its file operation of this number."""

    def prepare() -> None:
        left = number

        def count(*_: object) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

        def audit(name: str, arguments: tuple) -> None:
            writes = name == "open" and isinstance(arguments[1], str) and arguments[1][:1] in "wxa"
            if name in ("os.rename", "os.mkdir", "os.remove") or writes:
                count()

        sync = os.fsync
        os.fsync = lambda file: (count(), sync(file))[1]
        event.listen(Engine, "begin", count)
        event.listen(Engine, "commit", count)
        sys.addaudithook(audit)

    return prepare


def die_after(seconds: float) -> Callable[[], None]:
    """Return a function that lets the kernel end the process after that time, without a word to it."""
    return lambda: signal.setitimer(signal.ITIMER_REAL, seconds)


def rows(database: Path) -> list[tuple]:
    """Return the stored measurements without their times of day and ids."""
    with sqlite3.connect(database) as connection:
        found = connection.execute("SELECT task_id, config_digest, config, status, samples_ns FROM measurements")
        held = sorted(found)
    connection.close()
    return held


def same(one: Path, other: Path) -> list[str]:
    """Return the files of two campaigns that differ."""
    names = ("table.json", "inductor/inductor_table.json", "inductor/lookup_table.json")
    return [name for name in names if (one / name).read_bytes() != (other / name).read_bytes()]


class Attacks:
    """The attacks, and what they found."""

    def __init__(self, folder: Path, whole: Path, random_kills: int, flips: int, chance: random.Random) -> None:
        self.folder, self.whole, self.flips, self.chance = folder, whole, flips, chance
        self.random_kills = random_kills
        self.wrong: list[str] = []

    def judge(self, what: str, ended: Ended) -> Ended:
        if ended.fault:
            self.wrong.append(f"{what}: {ended.fault}")
        return ended

    def complete(self, what: str, out: Path, whole: Path | None = None, options: Sequence[str] = ()) -> None:
        """Run the campaign to its end and compare it with the whole one."""
        whole = whole or self.whole
        if self.judge(what, run(*TUNE, out, *options)).status:
            self.wrong.append(f"{what}: did not go on")
            return
        if rows(out / "measurements.db") != rows(whole / "measurements.db"):
            self.wrong.append(f"{what}: other measurements")
        self.wrong += [f"{what}: another {name}" for name in same(out, whole)]

    def kills(self) -> dict[str, int]:
        """Kill the campaign before each of its file operations, and let it go on."""
        killed = 0
        while True:
            out = self.folder / f"killed{killed}"
            if run(*TUNE, out, prepare=die_at(killed)).status != -signal.SIGKILL:
                return {"operations": killed}
            self.complete(f"kill at operation {killed}", out)
            shutil.rmtree(out)
            killed += 1

    def instants(self) -> dict[str, int]:
        """Kill the campaign at random instants, a fifth of the times on a Ray that it starts, and let it go on."""
        found = Counter()
        longer, whole = ["--budget", "300"], self.folder / "longer"
        for name, options, kills in (
            ("here", longer, self.random_kills - self.random_kills // 5),
            ("ray", [*longer, "--fleet", "ray"], self.random_kills // 5),
        ):
            shutil.rmtree(whole, ignore_errors=True)
            began = time.monotonic()
            self.judge(name, run(*TUNE, whole, *options))
            seconds = time.monotonic() - began
            for number in range(kills):
                out = self.folder / f"{name}{number}"
                ended = run(*TUNE, out, *options, prepare=die_after(self.chance.uniform(0, seconds)))
                found[f"{name}: {'killed' if ended.status == -signal.SIGALRM else 'ended before'}"] += 1
                if ended.status == -signal.SIGALRM and (out / "measurements.db").exists():
                    with suppress(sqlite3.OperationalError):  # killed before it made the tables
                        found[f"{name}: killed with measurements"] += bool(rows(out / "measurements.db"))
                self.complete(f"kill {number} {name}", out, whole, longer)
                shutil.rmtree(out, ignore_errors=True)  # there is none where the kill came first
        return dict(found)

    def full_disks(self) -> dict[str, int]:
        """Run the campaign on disks that are too small, then give them more room."""
        full = Counter()
        for kib in range(40, 640, 50):
            with mounted(self.folder / "disk", f"size={kib}k") as disk:
                ended = self.judge(f"disk of {kib} KiB", run(*TUNE, disk / "out"))
                full["refused" if ended.status == 2 else "enough"] += 1
                subprocess.run(["mount", "-o", "remount,size=8m", disk], check=True)
                self.complete(f"disk of {kib} KiB, enlarged", disk / "out")
        return dict(full)

    def together(self) -> dict[str, int]:
        """Run one campaign twice at a time in one folder, and five campaigns at a time on one database."""
        for number in range(5):
            out = self.folder / f"twice{number}"
            both = [start([*TUNE, str(out)]) for _ in range(2)]
            for wait in both:
                self.judge("two in one folder", wait())
            self.complete("two in one folder", out)
        shared = ["--database", str(self.folder / "shared.db")]
        for _ in range(2):  # the second time each knows what all have found
            seeds = [[*TUNE, str(self.folder / f"seed{n}"), "--seed", str(n), *shared] for n in range(5)]
            for wait in [start(arguments) for arguments in seeds]:
                if self.judge("five on one database", wait()).status:
                    self.wrong.append("five on one database: one failed")
        held = rows(self.folder / "shared.db")
        if len({row[:2] for row in held}) != len(held):
            self.wrong.append("five on one database: a measurement is there twice")
        tables = {(self.folder / f"seed{n}" / "table.json").read_bytes() for n in range(5)}
        if len(tables) != 1:
            self.wrong.append(f"five on one database: {len(tables)} tables")
        return {"in one folder": 10, "on one database": 10}

    def users(self) -> dict[str, int]:
        """Let another user read a finished campaign, a killed one, and one in a folder that nobody may write."""
        team, commands = self.folder / "team", 0
        team.mkdir()
        os.chown(team, OWNER, GROUP)
        team.chmod(0o2775)
        out, into = team / "out", self.folder / "into"
        into.mkdir(mode=0o777)
        into.chmod(0o777)
        for state in ("finished", "killed", "read-only"):
            if state == "killed":
                run(*TUNE, out, "--budget", "40", prepare=lambda: (become(OWNER), die_at(9)()))
            elif self.judge("owner", run(*TUNE, out, prepare=lambda: become(OWNER))).status:
                self.wrong.append(f"the owner could not tune before: {state}")
            if state == "read-only":
                out.chmod(0o555)
            before = sorted((path.name, path.stat().st_uid) for path in out.iterdir())
            for command in (
                ["status", out / "measurements.db"],
                ["show", out / "measurements.db"],
                ["show", out / "table.json"],
                ["merge", into / f"{state}.db", out / "measurements.db"],
            ):
                commands += 1
                if self.judge(f"{state} {command[0]}", run(*command, prepare=lambda: become(OTHER))).status:
                    self.wrong.append(f"{command[0]} of another user failed: {state}")
            if before != sorted((path.name, path.stat().st_uid) for path in out.iterdir()):
                self.wrong.append(f"another user changed the folder: {state}")
        return {"commands": commands}

    def flipped(self) -> dict[str, dict[str, int]]:
        """Flip a bit of each file and use it."""
        out = self.folder / "flipped"
        uses = {
            "measurements.db": [
                [*TUNE, out],
                ["status", out / "measurements.db"],
                ["show", out / "measurements.db"],
                ["merge", out / "merged.db", out / "measurements.db"],
            ],
            "table.json": [
                ["show", out / "table.json"],
                ["export", out / "table.json"],
                ["diff", out / "table.json", self.whole / "table.json"],
            ],
        }
        found = {}
        for name, commands in uses.items():
            for command in commands:
                counted = Counter()
                for _ in range(self.flips):
                    self.flip(out, name)
                    ended = self.judge(f"a bit of {name}, {command[0]}", run(*command))
                    kind = {0: "answered", 1: "differs", 2: "refused"}.get(ended.status, "wrong")
                    if command[0] == "tune" and ended.status == 0:
                        kind = self.shipped(out)
                    counted[kind] += 1
                found[f"{name}, {command[0]}"] = dict(counted)
        found["inductor_table.json, install"] = self.installed(out)
        return found

    def flip(self, out: Path, name: str) -> None:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(self.whole, out)
        content = bytearray((out / name).read_bytes())
        bit = self.chance.randrange(8 * len(content))
        content[bit // 8] ^= 1 << bit % 8
        (out / name).write_bytes(content)

    def shipped(self, out: Path) -> str:
        """Return whether the campaign ships the same rows; another config with a measured one's time is wrong."""
        if not same(out, self.whole):
            return "same table"
        choices = [
            [(row["choices"][0]["space"], row["choices"][0]["config"]) for row in json.loads(path.read_text())["rows"]]
            for path in (out / "table.json", self.whole / "table.json")
        ]
        return "other numbers" if choices[0] == choices[1] else "another choice"

    def installed(self, out: Path) -> dict[str, int]:
        """Load an exported table with a flipped bit: it is refused, or its rows are those that were exported."""
        counted = Counter()
        path = out / "inductor/inductor_table.json"
        whole = json.loads((self.whole / "inductor/inductor_table.json").read_text())["rows"]
        for _ in range(5 * self.flips):
            self.flip(out, "inductor/inductor_table.json")
            try:
                loader.sizes(path)
                counted["answered"] += 1
                if json.loads(path.read_text())["rows"] != whole:
                    self.wrong.append("inductor_table.json: loaded with other rows")
            except (TypeError, ValueError):
                counted["refused"] += 1
        return dict(counted)


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[Path]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", folder], check=True)


def become(user: int) -> None:
    """Turn this process into a user's; it keeps the right to read everything, as the interpreter may be root's."""
    os.setgroups([GROUP])
    os.setgid(user)
    os.setuid(user)
    os.umask(0o022)
    os.environ["HOME"] = "/nonexistent"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=40, help="kills at random instants")
    parser.add_argument("--flips", type=int, default=40, help="flipped bits per file and command")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="+", choices=ATTACKS, default=ATTACKS)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gemmtune-attacks-") as name:
        folder = Path(name)
        folder.chmod(folder.stat().st_mode | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        gt.tune(
            PROBLEMS[1], sampler="random", budget=2, out=folder / "warm"
        )  # forks share what is imported and parsed here
        whole = folder / "whole"
        first = run(*TUNE, whole)
        if first.status:
            sys.exit(first.output)
        attacks = Attacks(folder, whole, given.kills, given.flips, random.Random(given.seed))
        found = {name: getattr(attacks, name)() for name in given.only} | {"wrong": attacks.wrong}
    found |= {"date": datetime.now(UTC).date().isoformat(), "seconds": round(time.monotonic() - began)}
    text = json.dumps(found, indent=2)
    if given.json:
        given.json.write_text(text + "\n")
    print(text)
    return 1 if attacks.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
