"""Measure status and show on a PostgreSQL server of this host: time, and CPU on both sides.

    python experiments/growth/server.py --server postgresql+psycopg://USER@127.0.0.1:PORT/postgres --json result.json

USER makes a database per size, which stays: a second run finds it. README.md beside this file says what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Toolchain
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Estimate, Evidence, Measurement, Status
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database

SIZES = {1_000: 1_000, 10_000: 98, 50_000: 98}
"""Problems of each database, with the configs that each has beside the vendor library's and the first."""
_TICKS = os.sysconf("SC_CLK_TCK")


def first_rows(number: int) -> list[Measurement]:
    """Return two measurements per problem: the vendor library's, and one config's."""
    device, made = catalogue.device("H200"), []
    shared = {"protocol": "events-cold-l2", "toolchain": Toolchain((("torch", "2.11.0"),)), "worker": "host/gpu0"}
    for index in range(number):
        problem = Problem(m=16 * (1 + index % 250), n=512 * (1 + index // 250 % 20), k=64 * (1 + index // 5000))
        for space, time_ns in (("aten", 20_000.0), ("triton_mm", 18_000.0)):
            made.append(
                Measurement(
                    task=Task(problem, device, space),
                    config=Config({"BLOCK_M": 64} if space == "triton_mm" else {}),
                    status=Status.OK,
                    evidence=Evidence.MEASURED,
                    created_at="2026-11-21T10:00:00+00:00",
                    samples_ns=tuple(time_ns + x for x in range(10)),
                    estimate=Estimate(time_ns, time_ns - 50, time_ns + 50),
                    **shared,
                )
            )
    return made


def fill(url: str, problems: int, configs: int) -> None:
    """Store the first rows, and slower copies of those of `triton_mm` by SQL."""
    with Database.open(url) as database:
        rows = first_rows(problems)
        for start in range(0, len(rows), 5_000):
            database.add(rows[start : start + 5_000])
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute("SELECT * FROM measurements LIMIT 0").description
        names = [each.name for each in found if each.name not in ("id", "time_ns")]
        time_ns = "18000 + x * 7 + m.task_id % 13"
        own = {
            "config_digest": "md5(x::text || m.task_id)",
            "config": """'{"BLOCK_M":' || x || '}'""",
            "estimate": f"""json_build_object('time_ns', {time_ns}, 'low_ns', {time_ns}, 'high_ns', {time_ns})::text""",
        }
        columns = ", ".join(own.get(name, f"m.{name}") for name in names)
        connection.execute(
            f"INSERT INTO measurements ({', '.join(names)}) SELECT {columns} FROM generate_series(1, {configs}) AS x, "
            "measurements AS m JOIN tasks ON tasks.id = m.task_id WHERE tasks.space = 'triton_mm'"
        )
        connection.execute("VACUUM ANALYZE")


def server_seconds(url: str) -> float:
    """Return the CPU seconds of the server's ended processes: one per connection, and its helpers."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        status = Path(f"/proc/{pid}/status").read_text()
    parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid"))
    time.sleep(0.5)  # until the process above has ended
    user, system = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / _TICKS


def measured(command: list[str], url: str) -> dict[str, float]:
    """Run a command; return its wall seconds, the CPU seconds of both sides, and its peak memory."""
    before, began = server_seconds(url), time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.monotonic() - began
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    own = usage.ru_utime + usage.ru_stime
    server = server_seconds(url) - before
    found = {"wall_s": wall, "command_cpu_s": own, "server_cpu_s": server, "rss_mb": usage.ru_maxrss / 1024}
    return {name: round(value, 2) for name, value in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="URL of a database on the server, whose user may make others")
    parser.add_argument("--problems", type=int, nargs="*", default=list(SIZES), choices=SIZES)
    parser.add_argument("--gemmtune", default=str(Path(sys.executable).with_name("gemmtune")))
    parser.add_argument("--runs", type=int, default=3, help="runs of each command; the fastest counts")
    parser.add_argument("--json", type=Path, required=True, help="file whose entry `server` the figures are added to")
    arguments = parser.parse_args()
    content = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    results = content.setdefault("server", {})
    for problems in arguments.problems:
        name = f"growth{problems}"
        url = f"{arguments.server.rpartition('/')[0]}/{name}"
        with psycopg.connect(arguments.server.replace("+psycopg", ""), autocommit=True) as connection:
            there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if not there:
                connection.execute(f"CREATE DATABASE {name}")
        if not there:
            fill(url, problems, SIZES[problems])
        entry = results[name] = {"problems": problems, "measurements": problems * (SIZES[problems] + 2)}
        for command in ("status", "show"):
            runs = [measured([arguments.gemmtune, command, url], url) for _ in range(arguments.runs)]
            entry[command] = min(runs, key=lambda run: run["wall_s"])
            print(name, entry["measurements"], command, entry[command], flush=True)
        arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
