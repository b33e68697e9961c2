"""Count benchmarks of every supported torch with a table, without a GPU. Usage: versions.py --out FILE PYTHON...

Each PYTHON is an interpreter with gemmtune, one torch and its triton.
lowering.py explains the counts. The tables have ranges of m, made by hand, for every product of both programs that a
row can serve: Triton configs at some m, ATen at others. One says that it was made under the PYTHON's torch, one under
the oldest torch whose template has the same source. The exit status is 1 if any version asked for a benchmark with a
table.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from block import LLAMA
from problems import FORUM

from gemmtune.engine.consumers.inductor.exporter import InductorExporter
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Evidence
from gemmtune.engine.records.table import Choice, RangeRow, Row, Table
from gemmtune.engine.toolchain.releases import TORCH_VERSIONS, source_hash

SUMMED = ("graphs", "products", "lookups", "triton", "aten", "benchmarks")
MM = "triton::mm"
HERE = Path(__file__).parent
ASKED = "import torch, triton; print(f'torch {torch.__version__}, triton {triton.__version__}')"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="where the counts go")
    arguments.add_argument("pythons", nargs="+", metavar="PYTHON", help="an interpreter with gemmtune and torch")
    given = arguments.parse_args()
    arms = []
    for python in given.pythons:
        toolchain = subprocess.run([python, "-c", ASKED], capture_output=True, text=True, check=True).stdout.strip()
        for arm, made_with in (("table", toolchain), ("older table", oldest(toolchain)), ("no table", "")):
            print(f"== {toolchain}: {arm}", flush=True)
            arms.append({"toolchain": toolchain, "arm": arm, "rows": lowered(python, made_with)})
    found = {"date": datetime.now(UTC).date().isoformat(), "arms": arms}
    given.out.write_text(compact(json.dumps(found, indent=1)) + "\n")
    print("\n".join(summary(arms)))
    with_table = [row for arm in arms if arm["arm"] != "no table" for row in arm["rows"]]
    return int(any(row["benchmarks"] or row["several"] for row in with_table))


def lowered(python: str, made_with: str) -> list[dict]:
    """Return the counts of lowering.py with a table of that toolchain, from a process with caches of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if made_with:
            for file, text in InductorExporter().export(by_hand(made_with)).items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(text, encoding="utf-8")
        caches = {"TORCHINDUCTOR_CACHE_DIR": f"{name}/inductor", "TRITON_CACHE_DIR": f"{name}/triton"}
        command = [python, str(HERE / "lowering.py"), name if made_with else "-", f"{name}/counts.json"]
        subprocess.run(command, cwd=name, env={**os.environ, **caches}, check=True)
        return json.loads((folder / "counts.json").read_text())


def oldest(toolchain: str) -> str:
    """Return the toolchain of the first torch whose `triton::mm` has the source that it has in this one."""
    torch = toolchain.partition(",")[0].removeprefix("torch ")
    same = (each for each in TORCH_VERSIONS if source_hash(MM, each) == source_hash(MM, torch))
    return f"torch {next(same)}.0, triton 3.6.0"


def by_hand(toolchain: str) -> Table:
    """Return rows for all products but gradients of weights, whose k is m; ATen runs at m of 65 to 512."""

    def choice(*tiles: int) -> Choice:
        names = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_stages", "num_warps")
        config = Config(dict(zip(names, tiles, strict=True)) if tiles else {})
        space = "triton_mm" if tiles else "aten"
        return Choice(space, config, 1.0, 1.0, 1.0, 1, Evidence.ESTIMATED, toolchain, "by hand")

    few = choice(16, 32, 128, 8, 4, 4)
    # The last range does not end at 4096: torch 2.15 asks whether a norm's gradient has 4096 rows, which pins m.
    spans = (
        (2, 16, few),
        (17, 64, choice(64, 64, 64, 8, 4, 4)),
        (65, 512, choice()),
        (513, 1024, choice(128, 128, 64, 8, 4, 8)),
        (1025, 8192, choice(128, 256, 64, 8, 3, 8)),
    )
    products = [("nt:addmm", *reversed(FORUM)), ("nn", *FORUM)]
    for inputs, outputs in LLAMA.layers.values():
        products += [("nt", outputs, inputs), ("nn", inputs, outputs)]
    inputs, outputs = LLAMA.layers["down"]
    products.append(("nt:addmm:bias=matrix", outputs, inputs))  # with the residual: Inductor makes one product of both
    rows, ranges = [], []
    for kind, n, k in products:
        name = f"{n}x{k}:bf16:{kind}"
        rows.append(Row(Problem.parse(f"1x{name}"), (few,), None, 0.0, ()))
        if n in FORUM:
            rows.append(Row(Problem.parse(f"560x{name}"), (spans[3][2],), None, 0.0, ()))
        for first, last, its in spans:
            problem = Problem.parse(f"{last}x{name}:dynamic_m=true")
            ranges.append(RangeRow(problem, first, last, its, ((last, 0.0),)))
    return Table(catalogue.device("H200"), tuple(rows), "latency", tuple(ranges))


def summary(arms: list[dict]) -> list[str]:
    """Return the sums over all m, per version and program."""
    head = (
        "versions",
        "program",
        "arm",
        *(name.replace("triton", "Triton rows").replace("aten", "ATen") for name in SUMMED),
    )
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for arm in arms:
        for program in ("forum", "block"):
            rows = [row for row in arm["rows"] if row["program"] == program]
            sums = [sum(row[name] for row in rows) for name in SUMMED]
            lines.append(f"| {arm['toolchain']} | {program} | {arm['arm']} | {' | '.join(map(str, sums))} |")
    return lines


def compact(text: str) -> str:
    """Render the table with a line per row."""
    return re.sub(r"\{\s+(\"program\"[^{}]*)\}", lambda found: "{" + " ".join(found[1].split()) + "}", text)


if __name__ == "__main__":
    sys.exit(main())
