"""Measure CuTe GEMMs on a Hopper GPU, from candidates to dispatchers. Usage: run.py --out FOLDER. Needs a CUDA GPU.

Every arm runs in a process of its own, one after the other; after each, the results are in FOLDER/result.json. A second
run with the same FOLDER continues, and does not repeat what the database holds.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import report
from findings import candidates, findings
from problems import CUTE_SPACES, PROBLEMS, SPACES, tasks

from gemmtune.engine.records import catalogue
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

ARMS = ("build", "sweep", "tune", "load")
HERE = Path(__file__).parent
GEMMTUNE = (sys.executable, "-m", "gemmtune")


def main() -> None:
    given = arguments()
    device = present_device()
    if device is None and set(given.arms) == {"build"}:
        device = catalogue.device("H200")
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one (--arms build needs none)")
    given.out.mkdir(parents=True, exist_ok=True)
    names, until = tuple(given.problems), time.perf_counter() + given.seconds
    path, terms = given.out / "result.json", {"problems": list(names), "limit": given.limit}
    results = json.loads(path.read_text()) if path.exists() else {}
    results["facts"] = facts(device) | terms
    results["check"] = candidates(device, names, given.limit)
    for arm in given.arms:
        began = time.perf_counter()
        ended = [within(until - time.perf_counter(), command) for command in commands(arm, given.out, device, terms)]
        seconds = round(time.perf_counter() - began, 1)
        results.setdefault("arms", {})[arm] = {"seconds": seconds, "ended": ended}
        print(f"{arm}: {seconds} s, exit {', '.join(map(str, ended))}", flush=True)
        gather(results, given.out, device, known=arm in ("sweep", "load"))
    gather(results, given.out, device, known=not given.arms)
    report.print_report(results)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="folder for results, database and tables")
    parser.add_argument("--arms", nargs="*", choices=ARMS, default=ARMS, help="only these (default: all)")
    parser.add_argument("--problems", nargs="*", default=PROBLEMS, help="only these (default: ten)")
    parser.add_argument("--limit", type=int, help="candidates of a problem and space, spread evenly (default: all)")
    parser.add_argument("--seconds", type=float, default=320.0, help="after which nothing goes on (default 320)")
    return parser.parse_args()


def commands(arm: str, out: Path, device, terms: dict):
    """Return the processes of an arm."""
    spaces = tuple(word for space in CUTE_SPACES for word in ("--space", space))
    served = served_by(device, terms["problems"], "aten", *CUTE_SPACES)
    if arm == "tune":  # the table, by the real command, out of the sweep's database: nothing is left to measure
        budget = str(terms["limit"] or sys.maxsize)
        all_of_it = ("--sampler", "exhaustive", "--budget", budget, "--batch", budget)
        places = ("--database", str(out / "measurements.db"), "--out", str(out / "tuned"))
        yield (*GEMMTUNE, "tune", *problems(served), *spaces, *all_of_it, *places)
        yield (*GEMMTUNE, "export", str(out / "tuned/table.json"), "--to", "cute")
    else:
        yield (sys.executable, str(HERE / f"{arm}.py"), str(out), json.dumps(terms))


def problems(names) -> tuple[str, ...]:
    return tuple(word for name in names for word in ("--problem", name))


def served_by(device, names, *spaces: str) -> list[str]:
    """Return the problems that each space has configs for."""
    served = {(task.problem.name, task.space) for task in tasks(device, tuple(names))}
    return [name for name in names if all((name, space) in served for space in spaces)]


def within(seconds: float, command) -> int | str:
    """Run a command to its end, or for this number of seconds; return its exit status, or that it was cut off."""
    if seconds <= 0:
        return "no time left"
    with subprocess.Popen(command) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
        return "cut"


def gather(results: dict, out: Path, device, *, known: bool) -> None:
    """Write the arms' results, and the findings of the database if it may have changed."""
    for name in ("build", "sweep", "load"):
        if (out / f"{name}.json").exists():
            results[name] = json.loads((out / f"{name}.json").read_text())
    database, terms = out / "measurements.db", results["facts"]
    if known and database.exists():
        results["known"] = findings(device, tuple(terms["problems"]), database, terms["limit"])
    (out / "result.json").write_text(json.dumps(results, separators=(",", ":")) + "\n")


def facts(device) -> dict:
    return {
        "device": device.name,
        "date": datetime.now(UTC).date().isoformat(),
        "cores": len(os.sched_getaffinity(0)),
        "toolchains": {space: registry.space(space).toolchain().text for space in SPACES},
    }


if __name__ == "__main__":
    main()
