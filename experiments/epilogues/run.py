"""Tune products with epilogues and judge the table. Usage: run.py --out FOLDER [--minutes 4] [--cases 20] [--rehearse].

The search and a sweep of random configs measure through gemmtune; judge.py then times what torch.compile runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cases import Case, cases

import gemmtune as gt
from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.processes.process_pool import wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.tables.export import export_table

SEARCH_SHARE, SWEEP_SHARE = 0.3, 0.25  # of the time
CLOSE, FAR = 0.01, 0.03


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--minutes", type=float, default=4, help="wall time of all phases")
    arguments.add_argument("--cases", type=int, default=20, help="number of cases, of 80")
    arguments.add_argument("--names", help="cases to take instead, with commas, as the table of results names them")
    arguments.add_argument("--budget", type=int, default=24, help="evaluations per case of the search")
    arguments.add_argument("--sweep", type=int, default=40, help="random configs per case, beside the search")
    arguments.add_argument("--rehearse", action="store_true", help="build a config per case for an H200, without a GPU")
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    names = given.names.split(",") if given.names else None
    began = time.monotonic()
    chosen = [case for case in cases() if case.name in names] if names else list(cases())[: given.cases]
    seconds = 60 * given.minutes
    if given.rehearse:
        rehearse(chosen, given.out)
        return
    searched = tuned(given, chosen, "table", seconds * SEARCH_SHARE, budget=given.budget)
    spent = time.monotonic() - began
    sweeps = {"sampler": "random", "seed": 7, "budget": given.sweep}
    swept = tuned(given, chosen, "sweep", seconds * (SEARCH_SHARE + SWEEP_SHARE) - spent, **sweeps)
    export(searched.table, given.out / "table")
    best = (replace(row, choices=of_triton(row)) for row in swept.table.rows if of_triton(row))
    export(replace(swept.table, rows=tuple(best)), given.out / "sweep")
    left = max(20.0, seconds - (time.monotonic() - began) - 5)
    shutil.rmtree(given.out / "judged", ignore_errors=True)
    here = Path(__file__).parent
    command = [sys.executable, str(here / "judge.py"), str(given.out.resolve()), str(left), str(here)]
    subprocess.run([*command, *(case.name for case in chosen)], check=False, timeout=left + 120)
    report(given.out, chosen, searched)
    print(f"took {time.monotonic() - began:.0f} s")


def rehearse(chosen: Sequence[Case], folder: Path) -> None:
    """Build the first seed and the baseline of each case, without a GPU."""
    device = catalogue.device("H200")
    pool = builder_pool(("triton_mm", "aten"), folder, max(1, len(os.sched_getaffinity(0)) - 1), 300.0)
    for case in chosen:
        for space in ("triton_mm", "aten"):
            task = Task(gt.Problem.parse(case.problem), device, space)
            pool.submit(BuildJob(task, registry.space(space).seeds(task)[0]))
    while pool.pending:
        wait_for_any([pool], 5)
        for outcome in pool.collect():
            built = outcome.result
            facts = built.resources if isinstance(built, Artifact) else built
            print(outcome.job.task.key, round(built.build_seconds, 2), facts, flush=True)
    pool.close()


def tuned(given, chosen: Sequence[Case], name: str, seconds: float, **settings) -> gt.TuneResult:
    """Tune the cases into a database of their own."""
    database = given.out / f"{name}.db"
    result = gt.tune([case.problem for case in chosen], database=database, seconds=max(10.0, seconds), **settings)
    (given.out / f"{name}.txt").write_text(result.summary(160) + "\n")
    print(f"{name}: {len(result.rows)} rows", flush=True)
    return result


def of_triton(row) -> tuple:
    """Return a row's Triton choices, the fastest first."""
    found = [choice for choice in row.choices if choice.space == "triton_mm"]
    return tuple(sorted(found, key=lambda choice: choice.time_ns))


def export(table: gt.Table, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name, text in export_table(InductorExporter(), table, estimated=True).items():
        (folder / name).write_text(text)


def report(folder: Path, chosen: Sequence[Case], searched: gt.TuneResult) -> None:
    """Print each case's table choice over the faster of the library and the sweep's best, and write result.json."""
    said = {row.problem.name: row for row in searched.rows}
    lines, losses = [], []
    print(f"{'case':<28}{'library us':>11}{'table':>8}{'sweep':>8}{'loss':>8}{'row/judge':>10}  ships")
    files = (folder / "judged" / f"{case.name}.json" for case in chosen)
    for found in (json.loads(file.read_text()) for file in files if file.exists()):
        us, row = found["us"], said[gt.Problem.parse(found["problem"]).name]
        if "table" not in us or "library" not in us:
            print(f"{found['case']:<28} {found['facts']}"[:300])
            continue
        loss = us["table"] / min(us.values()) - 1
        ships, facts = row.choices[0], found["facts"]["table"]
        losses.append(loss)
        lines.append({**found, "loss": loss, "row_us": ships.time_ns / 1e3, "ships": ships.space})
        note = "" if facts["fused"] == (ships.space != "aten") else " NOT AS THE ROW SAYS"
        note += " BENCHMARKED" if facts["benchmarks"] else ""
        note += f" WRONG {facts['error']:.3f}" if facts["error"] > 0.02 else ""
        print(
            f"{found['case']:<28}{us['library']:11.2f}{us['table']:8.2f}{us.get('sweep', float('nan')):8.2f}{loss:8.3f}"
            f"{ships.time_ns / 1e3 / us['table']:10.3f}  {ships.space}{note}"
        )
    close, near = (sum(loss <= bound for loss in losses) for bound in (CLOSE, FAR))
    summary = {
        "cases": len(losses),
        "within_1_percent": close,
        "within_3_percent": near,
        "worst": max(losses, default=0),
    }
    (folder / "result.json").write_text(json.dumps({"summary": summary, "cases": lines}, indent=1) + "\n")
    print(f"{len(losses)} cases: loss at most 1 % in {close}, at most 3 % in {near}, worst {summary['worst']:.3f}")


if __name__ == "__main__":
    main()
