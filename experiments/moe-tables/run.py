"""Tune vLLM's fused-MoE files on one GPU from nothing, then time both files again in another process.

    python experiments/moe-tables/engines.py --wheels WHEELS --out .engines
    python experiments/moe-tables/run.py --out FOLDER --minutes 4

Three fifths of the time go to `gemmtune tune`, which is stopped when they are over: its database gives the table
all the same. The rest goes to compare.py. `--rehearse` needs no GPU: it enumerates, builds and looks up, and times
nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from layers import LAYERS, TOKENS, problems

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TUNING_SHARE = 0.6
START_SECONDS = 10
"""Until the first kernel is timed: builders and the worker start, and the GPU warms up."""
FINALS_SECONDS = 8
"""For the finals of a layer's 18 token counts."""
LAYER_SECONDS = 50
"""To tune a layer and to compare its file."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--wheel", "--engines", dest="engines", type=Path, default=ROOT / ".engines")
    parser.add_argument("--layers", default=None, help="names, separated by commas; by default as many as should fit")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--again", action="store_true", help="compare a table that is there, and tune nothing")
    parser.add_argument("--rehearse", action="store_true")
    arguments = parser.parse_args()
    began = time.monotonic()
    if not (arguments.engines / "vllm").is_dir():
        raise SystemExit(f"{arguments.engines} has no folder vllm: see engines.py")
    os.environ |= {
        "GEMMTUNE_VLLM": str(arguments.engines.resolve()),
        "GEMMTUNE_SGLANG": str(arguments.engines.resolve()),
    }
    most = max(1, int((60 * arguments.minutes - 20) / LAYER_SECONDS))
    names = arguments.layers.split(",") if arguments.layers else list(LAYERS)[:most]
    if unknown := [name for name in names if name not in LAYERS]:
        raise SystemExit(f"no layer {unknown[0]!r}; known: {', '.join(LAYERS)}")
    arguments.out.mkdir(parents=True, exist_ok=True)
    if arguments.rehearse:
        rehearse(names)
        return
    end = began + 60 * arguments.minutes
    seconds = {} if arguments.again else tune(arguments.out, names, arguments.budget, began, end)
    compare = [sys.executable, str(HERE / "compare.py"), str(arguments.out), str(max(20.0, end - time.monotonic() - 6))]
    compared = subprocess.run(compare, check=False)
    summarize(arguments.out, names, seconds)
    sys.exit(compared.returncode)


def tune(out: Path, names: list[str], budget: int, began: float, end: float) -> dict[str, float]:
    """Run `gemmtune tune` as a user does, within its share of the time; return how long its parts took."""
    tuned, most_seconds = out / "tuned", (end - began) * TUNING_SHARE
    search_seconds = max(10, round(most_seconds - START_SECONDS - FINALS_SECONDS * len(names)))
    command = [sys.executable, "-m", "gemmtune", "tune", "--space", "vllm_moe", "--budget", str(budget)]
    command += ["--no-report", "--out", str(tuned), "--seconds", str(search_seconds)]
    for text in problems(names):
        command += ["--problem", text]
    with (out / "tune.log").open("w") as log:
        running = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            running.wait(most_seconds)
        except subprocess.TimeoutExpired:
            running.terminate()  # it keeps what it measured
            running.wait(20)
    spent = time.monotonic() - began
    if running.returncode:
        command = [sys.executable, "-m", "gemmtune", "table", str(tuned / "measurements.db"), "--out", str(tuned)]
        with (out / "tune.log").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    return {"tune_seconds": round(spent, 1), "stopped": float(bool(running.returncode))}


def summarize(out: Path, names: list[str], seconds: dict[str, float]) -> None:
    """Write result.json and print a line per file."""
    found = json.loads((out / "compared.json").read_text())
    layers = {}
    for name in names:
        rows = [row for row in found["rows"] if row["layer"] == LAYERS[name]]
        if not rows:
            continue
        cold = [row["cold_ratio"] for row in rows]
        layers[name] = {
            "layer": LAYERS[name],
            "deployed_from": sorted({row["deployed_from"] for row in rows}),
            "tokens": [row["tokens"] for row in rows],
            "geomean": round(geomean(cold), 4),
            "worst": round(min(cold), 4),
            "best": round(max(cold), 4),
            "slower_by_2_percent": [row["tokens"] for row in rows if row["cold_ratio"] < 0.98],
            "kept": [row["tokens"] for row in rows if row["same"]],
            "stale_share": round(sum(ratio > 1.02 for ratio in cold) / len(cold), 3),
            "claims_over_3_percent": sum(row["claimed"] > 1.03 for row in rows),
            "warm_disagrees": [row["tokens"] for row in rows if row["claimed"] > 1.03 and row["warm_ratio"] < 1.0],
            "wrong": [row["tokens"] for row in rows if row["wrong"]],
        }
    result = {**seconds, "layers": layers, "rows_missing": found["missing"], "device": found["device"]}
    result["toolchain"] = found["toolchain"]
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{found['device']}, {found['toolchain']}; {seconds}")
    print(f"{'file of':24}{'rows':>5}{'geomean':>9}{'worst':>8}{'best':>7}{'stale':>7}  slower >2 %  warm disagrees")
    for name, each in layers.items():
        print(
            f"{name:24}{len(each['tokens']):5}{each['geomean']:9.3f}{each['worst']:8.3f}{each['best']:7.3f}"
            f"{each['stale_share']:7.0%}  {each['slower_by_2_percent'] or '-'}  {each['warm_disagrees'] or '-'}"
        )
    if found["missing"]:
        print(f"{found['missing']} rows were not compared: the time was over")


def rehearse(names: list[str]) -> None:
    """Do all that needs no GPU: look up, enumerate, build one config of each layer, and say how long it took."""
    from gemmtune.engine.records import catalogue
    from gemmtune.engine.records.task import Task
    from gemmtune.engine.seams import registry
    from gemmtune.engine.seams.kinds import parse_workload
    from gemmtune.engine.search.enumeration import feasible_configs
    from gemmtune.spaces.serving.shipped import deployed

    space, device = registry.space("vllm_moe"), catalogue.device("H200")
    for name in names:
        tasks = [Task(parse_workload(text), device, "vllm_moe") for text in problems([name])]
        now = [deployed(task.problem, space.engine, device) for task in tasks]
        counts = [sum(1 for _ in feasible_configs(space, task)) for task in tasks[:: len(TOKENS) - 1]]
        with tempfile.TemporaryDirectory() as folder:
            artifact = space.build(tasks[0], now[0].config, Path(folder))
        print(
            f"{name}: from {now[0].file}; {counts[0]} to {counts[-1]} configs; built in {artifact.build_seconds:.1f} s"
        )


def geomean(ratios: list[float]) -> float:
    product = 1.0
    for ratio in ratios:
        product *= ratio
    return product ** (1 / len(ratios))


if __name__ == "__main__":
    main()
