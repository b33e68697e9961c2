"""Measure status and show on a PostgreSQL server of this host: time, and CPU on both sides.

    python experiments/growth/server.py postgresql+psycopg://USER@127.0.0.1:PORT/postgres

USER makes a database per size, which stays: a second run finds it.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import psycopg
from run import run

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database
from gemmtune.engine.testing.objective_conformance import example_measurement

SIZES = {1_000: 1_000, 10_000: 98, 50_000: 98}
"""Problems of each database, with the configs that each has beside the vendor library's and the first."""
PAGE = 5_000


def fill(url: str, problems: int, configs: int) -> None:
    """Store two measurements per problem, and slower copies of those of `triton_mm` by SQL."""
    device, made = catalogue.device("H200"), []
    for i in range(problems):
        problem = Problem(m=16 * (1 + i % 250), n=512 * (1 + i // 250 % 20), k=64 * (1 + i // 5000))
        for space, params in (("aten", {}), ("triton_mm", {"BLOCK_M": 64})):
            made.append(replace(example_measurement(), task=Task(problem, device, space), config=Config(params)))
    with Database.open(url) as database:
        for start in range(0, len(made), PAGE):
            database.add(made[start : start + PAGE])
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        found = connection.execute("SELECT * FROM measurements LIMIT 0").description
        time_ns = f"{made[0].estimate.time_ns} + x * 7 + m.task_id % 13"
        own = {
            "config_digest": "md5(x::text || m.task_id)",
            "config": """'{"BLOCK_M":' || x || '}'""",
            "estimate": f"""json_build_object('time_ns', {time_ns}, 'low_ns', {time_ns}, 'high_ns', {time_ns})::text""",
        }
        columns = {each.name: own.get(each.name, f"m.{each.name}") for each in found}
        for name in ("id", "time_ns", "digest", "energy_joules"):  # show reads all energies
            del columns[name]
        connection.execute(
            f"INSERT INTO measurements ({', '.join(columns)}) SELECT {', '.join(columns.values())} FROM "
            f"generate_series(1, {configs}) AS x, measurements AS m JOIN tasks ON tasks.id = m.task_id "
            "WHERE tasks.space = 'triton_mm'"
        )
        connection.execute("VACUUM ANALYZE")


def server_seconds(url: str) -> float:
    """Return the CPU seconds of the server's ended processes: one per connection, and its helpers."""
    with psycopg.connect(url.replace("+psycopg", "")) as connection:
        (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone()
        parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
    time.sleep(0.5)  # until the process above has ended
    user, system = Path(f"/proc/{parent}/stat").read_text().rpartition(")")[2].split()[13:15]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main(server: str) -> None:
    for problems, configs in SIZES.items():
        name = f"growth{problems}"
        url = f"{server.rpartition('/')[0]}/{name}"
        with psycopg.connect(server.replace("+psycopg", ""), autocommit=True) as connection:
            there = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [name]).fetchone()
            if not there:
                connection.execute(f"CREATE DATABASE {name}")
        if not there:
            fill(url, problems, configs)
        for command in ("campaigns", "show"):
            before = server_seconds(url)
            run([Path(sys.executable).with_name("gemmtune"), command, url])
            print(f"  server: {server_seconds(url) - before:.2f} CPU s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
