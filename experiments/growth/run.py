"""Measure how the cost of commands grows with the problems of a campaign and with the rows of a database.

    python experiments/growth/run.py --to FOLDER --label before --gemmtune OTHER/bin/gemmtune --large --json result.json

README.md beside this file says what is measured.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice, product
from pathlib import Path

from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import feasible_configs
from gemmtune.engine.store.database import Database

DEVICE = "H200"
CONFIGS = 60  # recorded per problem
BUDGET = 8
ROWS_PER_PROBLEM = 1000  # of the large database
LARGE_PROBLEMS = 1000


def problems(number: int) -> list[Problem]:
    """Return distinct problems, in an order that a seed has shuffled."""
    sizes = [2**e * f for e in range(5, 13) for f in (1, 3, 5, 7)]
    every = [Problem(m=m, n=n, k=k) for m, n, k in product(sizes, sizes, sizes) if m * n * k <= 2**36]
    random.Random(0).shuffle(every)
    return every[:number]


def configs() -> list[Config]:
    """Return configs that are feasible for every problem."""
    space, task = registry.space("triton_mm"), Task(Problem(m=64, n=64, k=64), catalogue.device(DEVICE), "triton_mm")
    found = [config for config in feasible_configs(space, task) if config["BLOCK_M"] <= 64 and config["BLOCK_N"] <= 64]
    random.Random(1).shuffle(found)
    return found


def time_us(problem: Problem, config: Config, noise: random.Random) -> float:
    """Return a time that depends smoothly on the problem and the config, with noise."""
    tile = config.integer("BLOCK_M") * config.integer("BLOCK_N")
    work = 2 * problem.m * problem.n * problem.k / 6e8
    waste = (-problem.m % config.integer("BLOCK_M")) / problem.m + (-problem.n % config.integer("BLOCK_N")) / problem.n
    shape = 1 + abs(tile - 2048) / 4096 + abs(config.integer("BLOCK_K") - 64) / 256 + config.integer("num_stages") / 40
    return round((5 + work) * (1 + waste) * shape * noise.lognormvariate(0, 0.05), 3)


def write_landscape(path: Path, number: int) -> None:
    """Write the recorded times of each problem: 60 configs of triton_mm, one of the vendor library."""
    if path.exists():
        return
    noise, pool = random.Random(2), configs()[: CONFIGS * 4]
    params = list(pool[0])
    facts = {"task.device": DEVICE, "task.protocol": "events-cold-l2", "task.date": "2026-11-21"}
    names = ["problem.m", "problem.n", "problem.k", "task.space", *facts, "task.toolchain"]
    with gzip.open(path.with_suffix(".part"), "wt", compresslevel=1, newline="") as stream:
        lines = csv.writer(stream)
        lines.writerow([*names, *params, "time_us", "times_us", "status"])
        for problem in problems(number):
            chosen = noise.sample(pool, CONFIGS)
            times = [time_us(problem, config, noise) for config in chosen]
            size = problem.m, problem.n, problem.k
            rows = [("aten", "torch 2.11.0", ("",) * len(params), min(times) * noise.uniform(0.9, 1.3))]
            rows += [
                ("triton_mm", "torch 2.11.0, triton 3.6.0", tuple(c.values()), t)
                for c, t in zip(chosen, times, strict=True)
            ]
            for space, toolchain, values, middle in rows:
                launches = [round(middle * f, 3) for f in (0.99, 1.01, 1, 0.995, 1.005)]
                times_text = ";".join(map(str, launches))
                row = [*size, space, *facts.values(), toolchain, *values, round(middle, 3), times_text, "ok"]
                lines.writerow(row)
    path.with_suffix(".part").rename(path)


def fill(database: Path) -> int:
    """Add rows of other configs to each task of `triton_mm` by SQL; return the number of measurements."""
    space, task = registry.space("triton_mm"), Task(problems(1)[0], catalogue.device(DEVICE), "triton_mm")
    recorded = set(configs()[: CONFIGS * 4])
    more = list(islice((config for config in space.points(task) if config not in recorded), ROWS_PER_PROBLEM))
    noise = random.Random(3)
    with sqlite3.connect(database) as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(measurements)") if row[1] != "id"]
        times = "json_set(estimate, '$.time_ns', t, '$.low_ns', t * 0.99, '$.high_ns', t * 1.01)"
        own = {"digest": "NULL", "config_digest": "?", "config": "?", "estimate": times}
        columns = ", ".join(own.get(name, name) for name in names)
        tasks = "SELECT id FROM tasks WHERE space = 'triton_mm'"
        first = f"SELECT min(id) FROM measurements WHERE task_id IN ({tasks}) GROUP BY task_id"
        insert = (
            f"INSERT INTO measurements ({', '.join(names)}) SELECT {columns} FROM "
            f"(SELECT *, json_extract(estimate, '$.time_ns') * ? AS t FROM measurements WHERE id IN ({first}) "
            "AND status = 'ok')"
        )
        places = [name for name in names if own.get(name) == "?"]
        for config in more:
            values = {"config_digest": config.digest, "config": config.json}
            connection.execute(insert, (*(values[name] for name in places), noise.uniform(2, 9)))
        return int(connection.execute("SELECT count(*) FROM measurements").fetchone()[0])


def run(command: list[str | Path]) -> dict[str, float]:
    """Run a command; return its seconds, user seconds, peak memory and seconds to the first output."""
    result = {name: round(value, 2) for name, value in _run(list(map(str, command))).items()}
    print(" ".join(map(str, command))[-110:], result, flush=True)
    return result


def _run(command: list[str]) -> dict[str, float]:
    began = time.monotonic()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | {"COLUMNS": "200"}
    )
    assert process.stdout is not None
    first = b""
    said = None
    while chunk := os.read(process.stdout.fileno(), 2**16):
        said = said or time.monotonic() - began
        first = (first + chunk)[-4000:]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}: {first.decode()}")
    seconds = time.monotonic() - began
    return {
        "wall_s": seconds,
        "user_s": usage.ru_utime,
        "rss_mb": usage.ru_maxrss / 1024,
        "first_output_s": said or seconds,
    }


def tune(gemmtune: Path, landscape: Path, sampler: str, out: Path) -> list[str | Path]:
    """Return the command, without a page for the browser, which shows 200 problems at most."""
    options = ["--replay", landscape, "--budget", str(BUDGET), "--sampler", sampler, "--out", out]
    return [gemmtune, "tune", *options, "--no-report"]


def tuning(gemmtune: Path, folder: Path, number: int, sampler: str) -> Iterator[tuple[str, object]]:
    """Measure tune, tune again, and tune again in an empty folder with the database alone."""
    landscape, out = folder / f"landscape-{number}.csv.gz", folder / f"out-{number}-{sampler}"
    write_landscape(landscape, number)
    shutil.rmtree(out, ignore_errors=True)
    command = tune(gemmtune, landscape, sampler, out)
    yield "tune", run(command)
    yield "again", run(command)
    for path in out.iterdir():
        if path.is_file() and not path.name.startswith("measurements.db"):
            path.unlink()
    yield "resume", run(command)


def large(gemmtune: Path, folder: Path) -> Iterator[tuple[str, object]]:
    """Measure the commands on a database of a million measurements of 2,000 tasks."""
    made, landscape = folder / "large", folder / f"landscape-{LARGE_PROBLEMS}.csv.gz"
    write_landscape(landscape, LARGE_PROBLEMS)
    again = tune(gemmtune, landscape, "random", made)
    database, copy, empty = made / "measurements.db", folder / "copy.db", folder / "empty.db"
    if not made.exists():
        run(again)
        fill(database)
    nothing = folder / "nothing.db"
    Database.open(nothing).close()
    run([gemmtune, "campaigns", database, "merge", nothing])  # a first writer may add indexes
    for path in (copy, empty):
        for each in folder.glob(f"{path.name}*"):
            each.unlink()
    shutil.copy(database, copy)
    yield "megabytes", round(database.stat().st_size / 1e6)
    yield "status", run([gemmtune, "campaigns", database])
    yield "show", run([gemmtune, "show", database])
    yield "merge of nothing new", run([gemmtune, "campaigns", copy, "merge", database])
    yield "tune again", run(again)
    yield "merge into an empty one", run([gemmtune, "campaigns", empty, "merge", database])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, required=True, help="folder for landscapes, databases and tables")
    parser.add_argument("--gemmtune", type=Path, default=Path(sys.executable).with_name("gemmtune"))
    parser.add_argument("--label", default="after")
    parser.add_argument("--problems", type=int, nargs="*", default=[100, 300, 1000, 3000, 10000])
    parser.add_argument("--samplers", nargs="*", default=["random", "transfer"])
    parser.add_argument("--large", action="store_true", help="also measure on a database of a million measurements")
    parser.add_argument("--json", type=Path, required=True, help="file whose entry LABEL the figures are added to")
    arguments = parser.parse_args()
    arguments.to.mkdir(parents=True, exist_ok=True)
    content = json.loads(arguments.json.read_text()) if arguments.json.exists() else {}
    entry = content.setdefault(arguments.label, {})
    entry["date"] = datetime.now(UTC).isoformat(timespec="minutes")
    for number in arguments.problems:
        for sampler in arguments.samplers:
            of_sampler = entry.setdefault(str(number), {}).setdefault(sampler, {})
            for name, figures in tuning(arguments.gemmtune, arguments.to, number, sampler):
                of_sampler[name] = figures
                arguments.json.write_text(json.dumps(content, indent=1) + "\n")
    if arguments.large:
        for name, figures in large(arguments.gemmtune, arguments.to):
            entry.setdefault("large", {})[name] = figures
            arguments.json.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
