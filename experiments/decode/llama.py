"""Compare what a table's rows say with what Llama's decode step gains. Usage: llama.py --out FOLDER [--minutes 1.5].

One token of 1, 4 and 16 sequences: captures without the GPU, one campaign of all products, then a bench per size, whose
arms are CUDA graphs in alternating rounds. Needs an H200 and transformers; MODELS_LAYERS is 2 unless it is set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import gemmtune as gt
from gemmtune.engine.campaign.plan_file import read_plan

MODELS = Path(__file__).parents[1] / "models"
SPACES = ("cute_gemv", "cute_splitk", "triton_mm")
SEQUENCES = (1, 4, 16)
SEARCH_SHARE = 0.35  # of the time; captures, finals, export and benches need the rest
AIM = 0.03  # of the step, between what the rows say and what it gains


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for campaigns, the table and the results")
    parser.add_argument("--minutes", type=float, default=1.5, help="wall time; the search has a third of it")
    parser.add_argument("--budget", type=int, default=12, help="evaluations per product and space")
    parser.add_argument("--rehearse", action="store_true", help="capture only, as a machine without a GPU can")
    given = parser.parse_args()
    out, began = given.out.resolve(), time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    os.environ.setdefault("MODELS_LAYERS", "2")
    hidden = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    captures = [
        started(["capture", *options(number), "--device", "H200", "--out", str(out / f"{number}.toml")], hidden)
        for number in SEQUENCES
    ]
    for capture in captures:
        finished(capture)
    problems = [problem for number in SEQUENCES for problem in read_plan(out / f"{number}.toml").problems]
    print(f"{len(problems)} products captured in {time.monotonic() - began:.0f} s", flush=True)
    if given.rehearse:
        print("\n".join(f"{problem.name}: {problem.weight:g} runs" for problem in problems))
        return
    seconds = 60 * given.minutes * SEARCH_SHARE
    result = gt.tune(problems, space=SPACES, budget=given.budget, seconds=seconds, out=out / "table", report=False)
    (out / "search.txt").write_text(result.summary(160) + "\n")
    print(f"tuned after {time.monotonic() - began:.0f} s", flush=True)
    for number in SEQUENCES:
        rest = ["--table", str(out / "table"), "--arms", "compile,table", "--seconds", "3"]
        file = out / f"bench-{number}.json"
        file.write_text(finished(started(["bench", *options(number), *rest], dict(os.environ))))
        print(compared(number, json.loads(file.read_text())), flush=True)
    print(f"all in {time.monotonic() - began:.0f} s")


def options(sequences: int) -> list[str]:
    return ["models:llama", "--input", f"input_ids=int64[{sequences},1]%128256"]


def started(command: list[str], environment: dict) -> subprocess.Popen:
    """Begin a command of gemmtune whose output is JSON."""
    whole = [sys.executable, "-m", "gemmtune", *command, "--json"]
    pipe = subprocess.PIPE
    return subprocess.Popen(whole, cwd=MODELS, env=environment, stdout=pipe, stderr=pipe, text=True)


def finished(process: subprocess.Popen) -> str:
    """Return the output of a command; end the experiment with its error if it failed."""
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args[2:])}: {errors.strip()[-1500:]}")
    return output


def compared(number: int, bench: dict) -> str:
    """Return the saving by the rows beside that of the whole step, and the products that have a row."""
    times = {arm["arm"]: arm["time_ns"] for arm in bench["arms"]}
    saved = sum(product["saved_ns"] for product in bench["products"])
    gained = times["compile"] - times["table"]
    apart = (gained - saved) / times["compile"]
    kernels = [
        f"    {product['count']} x {product['problem']}: {product['outcome']}, {product['saved_ns'] / 1e3:.2f} us,"
        f" {product['kernel']}"
        for product in bench["products"]
    ]
    step, tabled = times["compile"] / 1e3, times["table"] / 1e3
    aim = f"{'within' if abs(apart) <= AIM else 'beyond'} {AIM:.0%}"
    lines = [
        f"{number} tokens: torch.compile {step:.1f} us, table {tabled:.1f} us ({step / tabled:.3f})",
        f"    gains {gained / 1e3:.2f} us, its rows say {saved / 1e3:.2f} us: {apart:+.1%} of the step, {aim}",
    ]
    return "\n".join([*lines, *kernels])


if __name__ == "__main__":
    main()
