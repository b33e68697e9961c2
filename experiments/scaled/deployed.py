"""Tune the products of a list of cases, deploy the table through torch.compile, and judge it there.

A run that was stopped goes on where it was when it is started again with the same folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

SEARCH_SHARE, SWEEP_SHARE = 0.35, 0.6  # of the time, until the end of either
SLOWER, WRONG = 1.01, 0.02


def main(description: str, cases_folder: Path, spaces: str, sweep: int = 64) -> None:
    """Run all phases for the cases that `cases.py` of a folder lists, with default values of two options."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--out", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--gpus", type=int, default=2, help="number of GPUs")
    arguments.add_argument("--minutes", type=float, default=5.5, help="wall time of all phases")
    arguments.add_argument("--budget", type=int, default=24, help="evaluations per product of the search")
    arguments.add_argument("--sweep", type=int, default=sweep, help="random configs per swept product")
    arguments.add_argument("--spaces", default=spaces, help="spaces to search")
    arguments.add_argument("--cases", type=int, help="number of cases, from the first on (default: all)")
    arguments.add_argument("--names", help="cases to take instead, with commas, as the table of results names them")
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(given.gpus)))
    gpus = ",".join(gpus.split(",")[: given.gpus])
    os.environ["CUDA_VISIBLE_DEVICES"] = gpus  # before anything imports torch
    began, seconds = time.monotonic(), 60 * given.minutes
    sys.path.insert(0, str(cases_folder))
    from cases import cases

    names = given.names.split(",") if given.names else None
    products = [case for case in cases() if names is None or case.name in names][: given.cases]
    parts = gpus.split(",")
    tune(given, products, seconds, began)
    left = max(30.0, seconds - (time.monotonic() - began) - 10)
    script = Path(__file__).parents[1] / "epilogues" / "judge.py"
    judge = [sys.executable, str(script), str(given.out.resolve()), str(left), str(cases_folder)]
    names = [case.name for case in products]
    running = [
        subprocess.Popen([*judge, *names[part :: len(parts)]], env={**os.environ, "CUDA_VISIBLE_DEVICES": gpu})
        for part, gpu in enumerate(parts)
    ]
    for each in running:
        each.wait()
    report(given.out, products, round(time.monotonic() - began, 1))


def tune(given, products, seconds: float, began: float) -> None:
    """Tune all products, sweep some, and export both tables; the times of the campaign go to a file."""
    import gemmtune as gt
    from gemmtune.engine.consumers.inductor.exporter import InductorExporter
    from gemmtune.engine.tables.export import export_table

    spaces = tuple(given.spaces.split(","))
    campaigns = {
        "table": ([case.problem for case in products], SEARCH_SHARE, {"budget": given.budget}),
        "sweep": (
            [case.problem for case in products if case.is_swept],
            SWEEP_SHARE,
            {"budget": given.sweep, "sampler": "random", "seed": 7},
        ),
    }
    facts = {}
    for name, (wanted, share, settings) in campaigns.items():
        if not wanted:
            continue
        started = time.monotonic()
        limit = max(15.0, seconds * share - (started - began))
        found = gt.tune(
            [*dict.fromkeys(wanted)], database=given.out / f"{name}.db", space=spaces, seconds=limit, **settings
        )
        table = found.table
        if name == "sweep":
            best = (replace(row, choices=others) for row in table.rows if (others := _searched(row)))
            table = replace(table, rows=tuple(best))
        (given.out / name).mkdir(exist_ok=True)
        for file, text in export_table(InductorExporter(), table, estimated=True).items():
            path = given.out / name / file
            path.parent.mkdir(exist_ok=True, parents=True)
            path.write_text(text)
        facts[name] = {"seconds": round(time.monotonic() - started, 1), "device": table.device.name}
        facts[name]["rows"] = [
            {
                "problem": row.problem.name,
                "space": row.choices[0].space,
                "config": dict(row.choices[0].config),
                "row_us": row.choices[0].time_ns / 1e3,
                "floor_us": _floor_us(row.problem, table.device),
            }
            for row in table.rows
        ]
        print(f"{name}: {len(found.rows)} rows in {facts[name]['seconds']} s", flush=True)
    (given.out / "campaigns.json").write_text(json.dumps(facts) + "\n")


def _searched(row) -> tuple:
    """Return a row's choices of the searched spaces, the fastest first."""
    found = (each for each in row.choices if not each.space.startswith("aten"))
    return tuple(sorted(found, key=lambda each: each.time_ns))


def _floor_us(problem, device) -> float:
    """Return the least time of a product by bandwidth or peak rate, in µs."""
    peak = device.peak_tflops(problem.compute_type) or math.inf
    return max(problem.min_bytes / device.memory_bandwidth_gb_s / 1e3, problem.flops / peak / 1e6)


def report(folder: Path, products, seconds: float) -> None:
    """Write result.json, and print a line per product and the means."""
    campaigns = json.loads((folder / "campaigns.json").read_text())
    rows = {row["problem"]: row for row in campaigns["table"]["rows"]}
    files = {folder / "judged" / f"{case.name}.json": case.group for case in products}
    lines = [_line(json.loads(file.read_text()), rows, group) for file, group in files.items() if file.exists()]
    print(f"{'case':<48}{'compile':>9}{'table':>9}{'gain':>7}{'sweep':>9}{'share':>7}  ships")
    for line in lines:
        print(
            f"{line['case']:<48}{line['compile_us']:9.2f}{line['table_us']:9.2f}{line['gain']:7.3f}"
            f"{line['sweep_us'] or math.nan:9.2f}{line['share']:7.2f}  {line['ships']}{line['note']}"
        )
    means = {}
    for group in dict.fromkeys(files.values()):
        gains = [line["gain"] for line in lines if line["group"] == group and not math.isnan(line["gain"])]
        means[group] = round(statistics.geometric_mean(gains), 4) if gains else None
    swept = [line["table_us"] / min(line["sweep_us"], line["table_us"]) for line in lines if line["sweep_us"]]
    summary = {
        "device": campaigns["table"]["device"],
        "seconds": seconds,
        "campaign_seconds": campaigns["table"]["seconds"],
        "judged": len(lines),
        "gain": means,
        "slower_by_1_percent": [line["case"] for line in lines if line["gain"] < 1 / SLOWER],
        "within_1_percent": sum(line["loss"] <= SLOWER - 1 for line in lines),
        "worst_loss": round(max((line["loss"] for line in lines), default=math.nan), 4),
        "worst_over_sweep": round(max(swept, default=math.nan), 4),
        "benchmarked": sum(line["benchmarks"] for line in lines),
        "failed": [f"{line['case']}:{line['note']}" for line in lines if "FAILED" in line["note"]],
        "wrong": [line["case"] for line in lines if "WRONG" in line["note"]],
    }
    (folder / "result.json").write_text(json.dumps({"summary": summary, "cases": lines}, indent=1) + "\n")
    print(json.dumps(summary, indent=1))


def _line(found: dict, rows: dict, group: str) -> dict:
    """Return the figures of a case."""
    us, facts = found["us"], found["facts"]
    row = rows.get(found["problem"], {"space": "no row", "floor_us": math.nan, "row_us": math.nan})
    table, plain = us.get("table", math.nan), us.get("library", math.nan)
    failed = [arm for arm, its in facts.items() if "failed" in its]
    wrong = [arm for arm, its in facts.items() if its.get("error", 0) > WRONG]
    note = f" FAILED {' '.join(failed)}" * bool(failed) + f" WRONG {' '.join(wrong)}" * bool(wrong)
    return {
        "case": found["case"],
        "problem": found["problem"],
        "group": group,
        "compile_us": plain,
        "table_us": table,
        "sweep_us": us.get("sweep"),
        "gain": plain / table,
        "loss": table / min(us.values(), default=math.nan) - 1,
        "share": row["floor_us"] / table,
        "row_us": row["row_us"],
        "ships": row["space"],
        "benchmarks": sum(facts.get("table", {}).get("benchmarks", {}).values()),
        "errors": {arm: its.get("error") for arm, its in facts.items()},
        "uses": facts.get("table", {}).get("uses"),
        "note": note,
    }
