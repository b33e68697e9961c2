"""Tune grouped products of 16 models against torch._grouped_mm. Usage: run.py --out FOLDER [--seconds 540] [--gpus 2].

A run that was stopped, or whose time was over, goes on where it was when it is started again with the same folder.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from dataclasses import replace
from pathlib import Path

MODELS = {  # experts on one device, experts per token there, hidden size, intermediate size
    "qwen3-30b-a3b": (128, 8, 2048, 768),
    "mixtral-8x7b-tp4": (8, 2, 4096, 3584),
    "deepseek-v3-ep8": (32, 1, 7168, 2048),
    "gpt-oss-20b": (32, 4, 2880, 2880),
    "olmoe-1b-7b": (64, 8, 2048, 1024),
    "llama-4-scout-tp4": (16, 1, 5120, 2048),
    "qwen3-235b-a22b-tp4": (128, 8, 4096, 384),
    "glm-4.5-air-tp4": (128, 8, 4096, 352),
    "deepseek-v2-lite": (64, 6, 2048, 1408),
    "qwen3-next-80b-tp4": (512, 10, 2048, 128),
    "gpt-oss-120b-tp4": (128, 4, 2880, 720),
    "granite-3.1-3b-a800m": (40, 8, 1536, 512),
    "phi-3.5-moe-tp4": (16, 2, 4096, 1600),
    "hunyuan-a13b-tp4": (64, 8, 4096, 768),
    "ernie-4.5-21b-a3b": (64, 6, 2560, 1536),
    "mixtral-8x22b-tp8": (8, 2, 6144, 2048),
}
TOKENS = (8, 64, 512, 4096, 32768)
ROUTINGS = {"uniform": "", "skewed": ":routing=zipf"}
SLOWER = 1.01


def products(model: str, tokens: int) -> dict[str, str]:
    """Return the texts of a layer's four products at a number of tokens, without their routing."""
    experts, top_k, hidden, inter = MODELS[model]
    rows, up = tokens * top_k, f"n{2 * inter}:k{hidden}"
    return {
        "up": f"grouped:rows:m{rows}:g{experts}:{up}:bf16:nt",
        "down": f"grouped:rows:m{rows}:g{experts}:n{hidden}:k{inter}:bf16:nt",
        "gradient of input": f"grouped:rows:m{rows}:g{experts}:n{hidden}:k{2 * inter}:bf16:nn",
        "gradient of weight": f"grouped:inner:m{2 * inter}:g{experts}:n{hidden}:k{rows}:bf16:tn",
    }


def cases() -> list[tuple[str, int, str, str]]:
    """Return model, tokens, product and text of every case: each model once per round, so that few rounds span much."""
    found = []
    for turn in range(len(TOKENS)):
        for at, model in enumerate(MODELS):
            tokens = TOKENS[(at + turn) % len(TOKENS)]
            of = products(model, tokens)
            kinds = list(of) if tokens >= 4096 else ["up", "down"]  # nobody trains on fewer
            kind = kinds[(at // len(TOKENS) + turn) % len(kinds)]
            found.append((model, tokens, kind, of[kind]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder of the database and of result.json")
    parser.add_argument("--seconds", type=float, default=540.0, help="wall time, about")
    parser.add_argument("--gpus", type=int, default=1, help="number of GPUs")
    parser.add_argument("--budget", type=int, default=24, help="evaluations per product")
    parser.add_argument("--spaces", default="quack_grouped,triton_grouped", help="spaces to search")
    parser.add_argument("--cases", type=int, default=80, help="cases, of which the first span all models")
    given = parser.parse_args()
    os.environ.setdefault("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(given.gpus))))  # before torch is imported
    import gemmtune as gt

    began, wanted = time.monotonic(), cases()[: given.cases]
    given.out.mkdir(parents=True, exist_ok=True)
    texts = [text + routing for *_, text in wanted for routing in ROUTINGS.values()]
    settings = {"space": tuple(given.spaces.split(",")), "budget": given.budget, "seconds": 0.6 * given.seconds}
    found = gt.tune(texts, database=given.out / "grouped.db", **settings)
    campaign_seconds = round(time.monotonic() - began, 1)
    rows = {row.problem.name: row for row in found.rows}
    report(given.out, wanted, rows, {}, found.device.name, campaign_seconds)
    exchanged = [replace(row, problem=replace(row.problem, routing=_other(row.problem))) for row in found.rows]
    checks = gt.verify(
        gt.Table.of(replace(found.table, rows=tuple(exchanged))), database=given.out / "exchanged.db"
    ).record.rows
    report(
        given.out, wanted, rows, {check.problem.name: check for check in checks}, found.device.name, campaign_seconds
    )


def _other(product) -> str:
    return "zipf" if product.routing == "uniform" else "uniform"


def report(out: Path, wanted, rows, checks, device: str, campaign_seconds: float) -> None:
    """Write result.json and print a line per case: gains under its routing, and of the other routing's kernel there."""
    lines = []
    for model, tokens, kind, text in wanted:
        for routing, part in ROUTINGS.items():
            if (row := rows.get(text + part)) is None or row.baseline is None or row.kernel is None:
                continue
            check, torch_us = checks.get(row.problem.name), row.baseline.time_ns / 1e3
            line = {"model": model, "tokens": tokens, "product": kind, "routing": routing, "torch_us": torch_us}
            line |= {"kernel_us": row.kernel.time_ns / 1e3, "gain": row.baseline.time_ns / row.kernel.time_ns}
            line["gain_of_other_routing"] = check and check.time_ns and row.baseline.time_ns / check.time_ns
            kernel = {"space": row.kernel.space, "config": dict(row.kernel.config)}
            lines.append(line | {"problem": row.problem.name, **kernel})
    groups = {"forward": ("up", "down"), "gradients": ("gradient of input", "gradient of weight")}
    summary = {"device": device, "campaign_seconds": campaign_seconds, "products": len(lines)}
    for key in ("gain", "gain_of_other_routing"):
        for name, kinds in groups.items():
            gains = [line[key] for line in lines if line["product"] in kinds and line[key]]
            summary[f"{key}, {name}"] = round(statistics.geometric_mean(gains), 4) if gains else None
        summary[f"{key}, slower by 1 %"] = [x["problem"] for x in lines if x[key] and x[key] < 1 / SLOWER]
    (out / "result.json").write_text(json.dumps({"summary": summary, "cases": lines}, indent=1) + "\n")
    print(f"{'model':22}{'tokens':>7} {'product':19}{'routing':8}{'torch':>9}{'kernel':>9}{'gain':>7}{'other':>7}")
    for x in lines:
        print(
            f"{x['model']:22}{x['tokens']:7} {x['product']:19}{x['routing']:8}{x['torch_us']:9.1f}{x['kernel_us']:9.1f}"
            f"{x['gain']:7.3f}{x['gain_of_other_routing'] or float('nan'):7.3f}"
        )
    print(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
