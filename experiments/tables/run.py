"""Measure the effect of a table with ranges of m on a model. Usage: run.py --out FOLDER [--arms tune,block-table,...].

Needs a GPU, and gemmtune with its extra `triton`. Each arm is a process; a time limit ends one arm, and the others go
on.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from problems import campaign
from report import report

HERE = Path(__file__).parent
ARMS = (
    "tune",
    "layers-table",
    "block-table",
    "forum-table",
    "forum-default",
    "block-default",
    "serving-table",
    "warmup",
    "serving-warm",
    "verify",
)
COMMANDS = {
    "tune": "tune {out}/campaign.toml --out {out}/tuned",
    "warmup": "export {out}/tuned/inductor/inductor_table.json --warm serving:forward --out {out}/warm.bin",
    "verify": "verify {out}/tuned/table.json --out {out}/verified",
}
"""Arms that are commands which a user would type."""


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
        command = typed(given, name) if name in COMMANDS else arm(given.out, name)
        start = time.monotonic()
        print(f"== {name}", flush=True)
        try:
            status = subprocess.run(command, cwd=HERE, timeout=left, check=False).returncode
        except subprocess.TimeoutExpired:
            status = "stopped after its time"
        print(f"== {name}: {time.monotonic() - start:.0f} s, status {status}", flush=True)
    print("\n".join(["", *report(given.out)]))
    return 0


def typed(given: argparse.Namespace, name: str) -> list[str]:
    out = given.out.resolve()
    (out / "campaign.toml").write_text(campaign(given.budget, given.tune_seconds))
    return [sys.executable, "-m", "gemmtune", *COMMANDS[name].format(out=out).split()]


def arm(out: Path, name: str) -> list[str]:
    table, result = out.resolve() / "tuned" / "inductor", out.resolve() / f"{name}.json"
    result.unlink(missing_ok=True)
    return [sys.executable, str(HERE / "arm.py"), name, str(table), str(result)]


if __name__ == "__main__":
    sys.exit(main())
