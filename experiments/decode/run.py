"""Check and time the decode kernels. Usage: run.py --out FOLDER [--minutes 3] [--phases check time] [--engines FOLDER].

`check` measures every param's extremes on ragged problems; a hang ends one worker process. `time` searches 32 products
of real models, exports the table, and times it in torch.compile beside eager and vLLM's kernels.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path

from check import check
from engines import FILES
from products import ROWS, decode_products

import gemmtune as gt
from gemmtune.engine.toolchain.gpu_info import present_device

CHECK_SHARE, SEARCH_SHARE = 0.2, 0.55  # of the time, and of what is left of it; finals and export come after
SEARCHED = {
    (1, 2, 4): ("cute_gemv", "cute_splitk"),
    (8, 16): ("cute_splitk", "triton_mm"),
    (32,): ("cute_splitk", "quack_gemm", "triton_mm"),
}
"""Spaces that may win, by rows; from 8 rows on, cute_gemv lost each of 8 products."""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--minutes", type=float, default=3, help="wall time of all phases")
    arguments.add_argument("--phases", nargs="*", default=["check", "time"], choices=["check", "time"])
    arguments.add_argument("--engines", help=f"folder with vLLM's {', '.join(FILES)}")
    arguments.add_argument("--budget", type=int, default=20, help="evaluations per problem and space")
    arguments.add_argument("--rows", type=int, nargs="*", default=ROWS, choices=ROWS, help="time these m alone")
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * given.minutes
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one")
    if "check" in given.phases:
        whole = "time" not in given.phases
        check(device, given.out, (ends - time.monotonic()) * (1 if whole else CHECK_SHARE))
    if "time" in given.phases:
        timed(given, device, ends)


def timed(given, device, ends: float) -> None:
    """Search and export a table, and judge it deployed; vLLM's kernels are built meanwhile."""
    began = time.monotonic()
    folder = given.out.resolve() / "kernels"
    folder.mkdir(exist_ok=True)
    engines = None
    if given.engines:
        command = [sys.executable, str(Path(__file__).with_name("engines.py")), given.engines, device.arch, str(folder)]
        engines = subprocess.Popen(command)
    seconds = (ends - began) * SEARCH_SHARE
    tables = given.out.resolve() / "table"
    facts, summaries = {}, []
    products = [name for name in decode_products() if rows_of(name) in given.rows]
    grouped = {rows: [name for name in products if rows_of(name) in rows] for rows in SEARCHED}
    searched = {rows: names for rows, names in grouped.items() if names}
    whole = sum(len(problems) * len(SEARCHED[rows]) for rows, problems in searched.items())
    for rows, problems in searched.items():  # each campaign keeps the rows of those before it
        spaces = SEARCHED[rows]
        share = seconds * len(problems) * len(spaces) / whole
        result = gt.tune(problems, space=spaces, budget=given.budget, seconds=share, out=tables, report=False)
        summaries.append(result.summary(160))
        for row in result.rows:
            choices = [{"space": c.space, "config": dict(c.config), "us": c.time_ns / 1e3} for c in row.choices]
            facts[row.problem.name] = choices
    (given.out / "search.txt").write_text("\n\n".join(summaries) + "\n")
    (given.out / "winners.json").write_text(json.dumps(facts, indent=0) + "\n")
    print(f"search and export: {len(facts)} rows in {time.monotonic() - began:.0f} s", flush=True)
    if engines is not None:
        engines.wait(timeout=max(1.0, ends - time.monotonic()))
    built = json.loads((folder / "engines.json").read_text()) if engines is not None else {}
    jobs = {name: built.get(name, {}) for name in in_turns(products)}
    (given.out / "jobs.json").write_text(json.dumps(jobs))
    left = max(15.0, ends - time.monotonic() - 3)
    files = [str(given.out / "jobs.json"), str(tables / "inductor"), str(given.out / "judged.json")]
    command = [sys.executable, str(Path(__file__).with_name("judge.py")), *files, str(left)]
    subprocess.run(command, check=False, timeout=left + 60)
    print_report(json.loads((given.out / "judged.json").read_text()))


def rows_of(name: str) -> int:
    return int(name.split("x", maxsplit=1)[0])


def in_turns(names: list[str]) -> list[str]:
    """Return the problems so that a run that ends early has some of every m."""
    rank = defaultdict(int)
    keys = {}
    for name in names:
        m = rows_of(name)
        keys[name] = rank[m]
        rank[m] += 1
    return sorted(names, key=keys.__getitem__)


def print_report(rows) -> None:
    """Print times over cuBLAS's of the deployed table and of vLLM's best kernel, and geometric means per m."""
    over = defaultdict(lambda: defaultdict(list))
    print(f"{'product':<24}{'cuBLAS us':>10}{'table us':>10}{'over':>8}{'share':>8}{'vLLM':>8}")
    for row in sorted(rows, key=lambda row: rows_of(row["problem"])):
        ratio = row["over_cublas"]
        theirs = {name: its for name, its in ratio.items() if name.startswith("vllm")}
        other = max(theirs, key=theirs.get, default=None)
        ours = ratio.get("table", math.nan)
        us = row["us"]
        cells = (
            f"{us['eager']:10.2f}{us.get('table', math.nan):10.2f}{ours:8.3f}{row['share'].get('table', math.nan):8.3f}"
        )
        print(f"{row['problem']:<24}{cells}{theirs.get(other, math.nan):8.3f}  {other or ''}")
        m = rows_of(row["problem"])
        over[m]["table"].append(ours)
        over[m]["vLLM"].append(max(1.0, theirs.get(other, 1.0)))
    for m in ROWS:
        if over[m]["table"]:
            means = {who: math.exp(sum(map(math.log, its)) / len(its)) for who, its in over[m].items()}
            print(
                f"m {m}: table {means['table']:.3f} over cuBLAS, worst {min(over[m]['table']):.3f};"
                f" best of cuBLAS and vLLM {means['vLLM']:.3f}"
            )
    benchmarks = sum(row["benchmarks"] for row in rows)
    print(f"{len(rows)} products deployed, {benchmarks} benchmarks while compiling")


if __name__ == "__main__":
    main()
