"""Tune a hundred problems from nothing, and judge the table. Usage: run.py --out FOLDER [--arms ...].

Needs a GPU, and gemmtune with its extra `triton`; the arm `decode` needs the extra `cute`. A time limit ends one arm,
and the others go on. Without a GPU the script rehearses on the recorded problems, and its times mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import judge
import rehearsal
from rehearsal import HERE, gpu

from gemmtune.engine.store.database import Database
from gemmtune.engine.tables.table_file import read_table
from gemmtune.engine.toolchain.gpu_info import equal_gpus

GEMMTUNE = (sys.executable, "-m", "gemmtune", "tune")
DECODE_SPACES = ("triton_mm", "cute_gemv", "cute_splitk")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="where tables and results go")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=ARMS, help="only these (default: all)")
    parser.add_argument("--seconds", type=float, default=900, help="for everything together (default 900)")
    parser.add_argument("tune", nargs="*", help="options for the campaigns, behind --: -- --budget 12")
    given = parser.parse_args()
    out: Path = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    print(", ".join(f"{name} {value}" for name, value in facts().items()), flush=True)
    end = time.monotonic() + given.seconds
    for name in given.arms:
        left = end - time.monotonic()
        if left < 5:
            print(f"== {name}: no time left")
            continue
        print(f"== {name}", flush=True)
        found = ARMS[name](out, left, given.tune)
        if "missing" in found:
            print(f"== {name}: {found['missing']}")
            continue
        (out / f"{name}.json").write_text(json.dumps(facts() | found, separators=(",", ":")) + "\n")
        print(f"== {name}: {found['seconds']:.1f} s, status {found['status']}", flush=True)
    print("\n".join(summary(out)))
    return 0


def campaign(out: Path, left: float, options: Sequence[str]) -> dict:
    """Run the command from an empty database."""
    return tuned(out / "campaign", left, options)


def decode(out: Path, left: float, options: Sequence[str]) -> dict:
    """Run the campaign with the spaces for few rows."""
    return tuned(out / "decode", left, [*options, *(word for space in DECODE_SPACES for word in ("--space", space))])


def tuned(folder: Path, left: float, options: Sequence[str]) -> dict:
    shutil.rmtree(folder, ignore_errors=True)
    seconds, status = within(command(folder, options), left)
    if not (folder / "measurements.db").exists():
        return {"missing": f"status {status}, nothing measured"}
    with Database.open(folder / "measurements.db", read_only=True) as store:
        spent = [m.build_seconds for m in store.measurements() if m.build_seconds]
        found = {"seconds": round(seconds, 2), "status": status, "measurements": len(store)}
    return found | {"builds": len(spent), "build_seconds": round(sum(spent), 2)}


def again(out: Path, left: float, options: Sequence[str]) -> dict:
    """Run the same command again: it measures nothing, and writes an equal table."""
    folder = out / "campaign"
    if not (folder / "table.json").exists():
        return {"missing": "needs the arm campaign"}
    before = held(folder)
    seconds, status = within(command(folder, options), left)
    after = held(folder)
    return {
        "seconds": round(seconds, 2),
        "status": status,
        "new_measurements": after[0] - before[0],
        "new_finals": after[1] - before[1],
        "same_rows": after[2] == before[2],
    }


def held(folder: Path) -> tuple[int, int, object]:
    """Return measurements and finals of the database, and the table's rows."""
    with Database.open(folder / "measurements.db", read_only=True) as store:
        return len(store), len(store.finals()), read_table(folder / "table.json").rows


def meet(out: Path, left: float, _options: Sequence[str]) -> dict:
    """Hold finals between the campaign's choices and the best of the sweeps."""
    if not (out / "campaign" / "table.json").exists() or gpu() is None:
        return {"missing": "needs the arm campaign, and a GPU"}
    rows = out / "meet_rows.json"
    rows.unlink(missing_ok=True)
    seconds, status = within([sys.executable, str(HERE / "meet.py"), str(out), str(rows)], left)
    found = json.loads(rows.read_text()) if rows.exists() else {"rows": []}
    return {"seconds": round(seconds, 2), "status": status, **found}


ARMS: dict[str, Callable[[Path, float, Sequence[str]], dict]] = {
    "campaign": campaign,
    "again": again,
    "meet": meet,
    "decode": decode,
}


def command(folder: Path, options: Sequence[str]) -> list[str]:
    return [*GEMMTUNE, *rehearsal.campaign(), *options, "--out", str(folder)]


def within(words: Sequence[str], seconds: float) -> tuple[float, int | str]:
    """Run the command to its end, or for this number of seconds; return its seconds and its status."""
    began = time.monotonic()
    with subprocess.Popen(words) as process:
        try:
            status: int | str = process.wait(max(seconds, 0))
        except subprocess.TimeoutExpired:
            process.terminate()  # in order: what is measured is kept
            status = "cut"
    return time.monotonic() - began, status


def facts() -> dict:
    device = gpu()
    return {
        "device": device.name if device else "none: a rehearsal",
        "gpus": max(len(equal_gpus()), 1),
        "cores": len(os.sched_getaffinity(0)),
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
    }


def summary(out: Path) -> list[str]:
    """Judge the tables by the present sweeps, write result.json, and render every arm as text."""
    found = {name: json.loads(path.read_text()) for name in ARMS if (path := out / f"{name}.json").exists()}
    truths = rehearsal.truths(out)
    lines = ["", f"{len(truths)} sweeps to judge by"]
    for name in ("campaign", "decode"):
        if name in found:
            judge_table(out / name, found[name], truths)
            lines += [f"{name}: {found[name]['seconds']} s, {found[name]['builds']} builds"]
            lines += [f"  {line}" for line in judge.result_lines(found[name]["problems"])]
    if "again" in found:
        lines.append(f"again: {json.dumps(found['again'])}")
    shares = [row["of_optimum"] for row in found.get("meet", {}).get("rows", [])]
    if shares:
        lines.append(f"met the best of the sweeps: mean {sum(shares) / len(shares):.4f}, worst {min(shares):.4f}")
    (out / "result.json").write_text(json.dumps(found, separators=(",", ":")) + "\n")
    return lines


def judge_table(folder: Path, found: dict, truths: dict) -> None:
    """Add the problems, compared with the sweeps; none if the campaign was cut off before its table."""
    table = folder / "table.json"
    rows = read_table(table).rows if table.exists() else ()
    found["problems"] = [judge.judged(row, truths.get(row.problem.name)) for row in rows]


if __name__ == "__main__":
    sys.exit(main())
