"""Tune an engine's layers on one GPU from nothing, then time our configs and the shipped ones in another process.

    python experiments/moe-tables/engines.py --wheels WHEELS --out .engines
    python experiments/moe-tables/run.py --out FOLDER --minutes 4
    python experiments/moe-tables/run.py --engine sglang --out FOLDER --minutes 3

`--engine sglang` runs SGLang's MoE layers, and the block-fp8 linear layers of both engines, at 7 token counts. Three
fifths of the time go to `gemmtune tune`, which is stopped when they are over: its database gives the table all the
same. The rest goes to compare.py. Without a GPU, `gemmtune check vllm_moe --problem LAYER` builds configs of a layer.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from math import prod
from pathlib import Path

from layers import layers, tokens

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
TUNING_SHARE = 0.6
START_SECONDS = 10
"""Until the first kernel is timed: builders and the worker start, and the GPU warms up."""
FINAL_SECONDS = 0.45
"""For the final of one row."""
ROW_SECONDS = 2.4
"""To tune a row and to compare its configs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--engine", choices=("vllm", "sglang"), default="vllm")
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--wheel", "--engines", dest="engines", type=Path, default=ROOT / ".engines")
    parser.add_argument("--layers", default=None, help="names, separated by commas; by default as many as should fit")
    parser.add_argument("--budget", type=int, default=24)
    parser.add_argument("--again", action="store_true", help="compare a table that is there, and tune nothing")
    arguments = parser.parse_args()
    began = time.monotonic()
    for engine in ("vllm", "sglang"):
        if not (arguments.engines / engine).is_dir():
            raise SystemExit(f"{arguments.engines} has no folder {engine}: see engines.py")
        os.environ[f"GEMMTUNE_{engine.upper()}"] = str(arguments.engines.resolve())
    known, counts = layers(arguments.engine), tokens(arguments.engine)
    most = len(known) if arguments.again else max(1, int((60 * arguments.minutes - 20) / ROW_SECONDS / len(counts)))
    names = arguments.layers.split(",") if arguments.layers else list(known)[:most]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"no layer {unknown[0]!r}; known: {', '.join(known)}")
    problems = {name: [f"{known[name][0]}:m{count}:{known[name][1]}" for count in counts] for name in names}
    arguments.out.mkdir(parents=True, exist_ok=True)
    end = began + 60 * arguments.minutes
    seconds = {} if arguments.again else tune(arguments.out, problems, arguments.budget, began, end)
    compare = [sys.executable, str(HERE / "compare.py"), str(arguments.out), str(max(20.0, end - time.monotonic() - 6))]
    compared = subprocess.run(compare, check=False)
    summarize(arguments.out, problems, seconds)
    sys.exit(compared.returncode)


def tune(out: Path, problems: dict[str, list[str]], budget: int, began: float, end: float) -> dict[str, float]:
    """Run `gemmtune tune` as a user does, within its share of the time; return how long its parts took."""
    texts = [text for of in problems.values() for text in of]
    tuned, most_seconds = out / "tuned", (end - began) * TUNING_SHARE
    search_seconds = max(10, round(most_seconds - START_SECONDS - FINAL_SECONDS * len(texts)))
    command = [sys.executable, "-m", "gemmtune", "tune", "--budget", str(budget)]
    command += ["--no-report", "--out", str(tuned), "--seconds", str(search_seconds)]
    for space in dict.fromkeys(text.partition(":")[0] for text in texts):
        command += ["--space", space]
    for text in texts:
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
        command = [sys.executable, "-m", "gemmtune", "export", str(tuned / "measurements.db"), "--out", str(tuned)]
        with (out / "tune.log").open("a") as log:
            subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    return {"tune_seconds": round(spent, 1), "stopped": float(bool(running.returncode))}


def summarize(out: Path, problems: dict[str, list[str]], seconds: dict[str, float]) -> None:
    """Write result.json and print a line per file."""
    found = json.loads((out / "compared.json").read_text())
    files = {}
    for name, texts in problems.items():
        rows = [row for row in found["rows"] if row["problem"] in texts]
        if not rows:
            continue
        timed = [row for row in rows if not row["wrong"]]
        cold = [row["cold_ratio"] for row in timed] or [1.0]
        files[name] = {
            "layer": texts[0].replace(":m1:", ":m:"),
            "deployed_from": sorted({row["deployed_from"] for row in rows}),
            "tokens": [row["tokens"] for row in rows],
            "geomean": round(prod(cold) ** (1 / len(cold)), 4),
            "worst": min(cold),
            "best": max(cold),
            "slower_by_2_percent": [row["tokens"] for row in timed if row["cold_ratio"] < 0.98],
            "kept": [row["tokens"] for row in rows if row["same"]],
            "stale_share": round(sum(ratio > 1.02 for ratio in cold) / len(cold), 3),
            "claims_over_3_percent": sum(row["claimed"] > 1.03 for row in rows),
            "wrong": [row["tokens"] for row in rows if row["wrong"]],
        }
    result = {**seconds, "layers": files, "rows_missing": found["missing"], "device": found["device"]}
    result["toolchain"] = found["toolchain"]
    (out / "result.json").write_text(json.dumps(result, indent=1) + "\n")
    print(f"{found['device']}, {found['toolchain']}; {seconds}")
    heads = f"{'rows':>5}{'geomean':>9}{'worst':>8}{'best':>7}{'stale':>7}  slower >2 %  wrong"
    print(f"{'file of':30}{heads}")
    for name, each in files.items():
        print(
            f"{name:30}{len(each['tokens']):5}{each['geomean']:9.3f}{each['worst']:8.3f}{each['best']:7.3f}"
            f"{each['stale_share']:7.0%}  {each['slower_by_2_percent'] or '-'}  {each['wrong'] or '-'}"
        )
    if found["missing"]:
        print(f"{found['missing']} rows were not compared: the time was over")


if __name__ == "__main__":
    main()
