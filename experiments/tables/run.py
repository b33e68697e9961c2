"""What does a table with ranges of m do for a model? Usage: run.py --out FOLDER [--arms tune,block-table,...].

Needs a GPU, and gemmtune with its extra `triton`. Each arm is a process; a time limit ends one, and the rest goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from problems import campaign

HERE = Path(__file__).parent
ARMS = ("tune", "layers-table", "block-table", "forum-table", "forum-default", "block-default")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="where table and results go")
    arguments.add_argument("--arms", default=",".join(ARMS), help="default: all of them, in this order")
    arguments.add_argument("--seconds", type=float, default=390, help="for everything together (default 390)")
    arguments.add_argument("--tune-seconds", type=float, default=150, help="for searching (default 150)")
    arguments.add_argument("--budget", type=int, default=16, help="evaluations a problem (default 16)")
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + given.seconds
    for name in given.arms.split(","):
        left = end - time.monotonic()
        if left < 5:
            print(f"{name}: no time left")
            continue
        command = tune(given) if name == "tune" else arm(given.out, name)
        start = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            status = subprocess.run(command, cwd=HERE, timeout=left, check=False).returncode
        except subprocess.TimeoutExpired:
            status = "stopped after its time"
        print(f"== {name}: {time.monotonic() - start:.0f} s, status {status}", flush=True)
    print("\n".join(summary(given.out)))
    return 0


def tune(given: argparse.Namespace) -> list[str]:
    plan = given.out.resolve() / "campaign.toml"
    plan.write_text(campaign(given.budget, given.tune_seconds))
    return [sys.executable, "-m", "gemmtune.engine.cli", "tune", str(plan), "--out", str(given.out.resolve() / "tuned")]


def arm(out: Path, name: str) -> list[str]:
    table, result = out.resolve() / "tuned" / "inductor", out.resolve() / f"{name}.json"
    result.unlink(missing_ok=True)
    return [sys.executable, str(HERE / "arm.py"), name, str(table), str(result)]


def summary(out: Path) -> list[str]:
    """A short table; what has no result is left out."""
    found = {path.stem: json.loads(path.read_text())["rows"] for path in sorted(out.glob("*-*.json"))}
    lines = ["", "summary"]
    tuned = out / "tuned" / "summary.txt"
    if tuned.exists():
        wanted = ("rows of the table", "portfolio", "to compile", "ranges of m", "  loss")
        lines += [line for line in tuned.read_text().splitlines() if line.startswith(wanted)]
    for name, rows in found.items():
        ratios = [(row["forward_ms"] / row["forward_eager_ms"], row) for row in rows]
        worst, at = max(ratios, key=lambda pair: pair[0])
        best, where = min(ratios, key=lambda pair: pair[0])
        benchmarks = sum(sum(row["benchmarks"].values()) for row in rows)
        benchmarks += sum(count for row in rows for key, count in row.items() if key.endswith("_benchmarks"))
        lines.append(
            f"{name}: {benchmarks} benchmarks, {sum(row['other_kernels_timed'] for row in rows)} other kernels timed, "
            f"{sum(row['graphs'] for row in rows)} graphs, first calls "
            f"{sum(row['first_seconds'] for row in rows):.1f} s; forward over eager {best:.3f} (m={where['m']}"
            f"{', ' + where['layer'] if 'layer' in where else ''}) to {worst:.3f} (m={at['m']}"
            f"{', ' + at['layer'] if 'layer' in at else ''})"
        )
    for name in ("block-table", "block-default", "forum-table", "forum-default"):
        lines += [f"{name}:", *(_row(row) for row in found.get(name, []))] if name in found else []
    slower = [
        f"{row['layer']} m={row['m']} {row['forward_ms'] / row['forward_eager_ms'] - 1:+.1%}"
        for row in found.get("layers-table", [])
        if row["forward_ms"] > 1.02 * row["forward_eager_ms"]
    ]
    if "layers-table" in found:
        lines.append("layers slower than eager by more than 2 %: " + (", ".join(slower) or "none"))
        gains = [row for row in found["layers-table"] if row["forward_ms"] * 1.02 < row["forward_eager_ms"]]
        lines.append(
            "layers faster by more than 2 %: "
            + (
                ", ".join(f"{r['layer']} m={r['m']} {r['forward_eager_ms'] / r['forward_ms']:.2f}x" for r in gains)
                or "none"
            )
        )
    return lines


def _row(row: dict) -> str:
    return (
        f"  m={row['m']:<5} first {row['first_seconds']:6.2f} s  forward {row['forward_ms']:8.3f} ms "
        f"(eager {row['forward_eager_ms']:8.3f})  step {row['step_ms']:8.3f} ms (eager {row['step_eager_ms']:8.3f})"
    )


if __name__ == "__main__":
    sys.exit(main())
