"""Check and time the decode kernels. Usage: run.py --out FOLDER [--minutes 3] [--phases check time] [--engines FOLDER].

`check` measures every param's extremes on ragged problems; a hang ends one worker process. `time` searches 24 products
of real models, and then times cuBLAS, the winners and vLLM's kernels side by side.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from check import SPACES, check
from engines import FILES, built, kernels_of
from products import ROWS, decode_products

import gemmtune as gt
from gemmtune.engine.measure.builder import BuildFailure, BuildJob, builder_pool
from gemmtune.engine.platform.gpu_info import present_device
from gemmtune.engine.processes.process_pool import wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

CHECK_SHARE, SEARCH_SHARE = 0.35, 0.55  # of the time, and of what is left of it


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="folder for the results")
    arguments.add_argument("--minutes", type=float, default=3, help="wall time of all phases")
    arguments.add_argument("--phases", nargs="*", default=["check", "time"], choices=["check", "time"])
    arguments.add_argument("--engines", help=f"folder with vLLM's {', '.join(FILES)}")
    arguments.add_argument("--budget", type=int, default=28, help="evaluations per problem and space")
    arguments.add_argument("--rehearse", action="store_true", help="build some kernels without a GPU, time nothing")
    given = arguments.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    ends = time.monotonic() + 60 * given.minutes
    if given.rehearse:
        rehearse(given)
        return
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: this experiment times on one; --rehearse builds without")
    if "check" in given.phases:
        whole = "time" not in given.phases
        check(device, given.out, (ends - time.monotonic()) * (1 if whole else CHECK_SHARE))
    if "time" in given.phases:
        timed(given, device, ends)


def timed(given, device, ends: float) -> None:
    """Search, and judge the winners of both spaces."""
    seconds = (ends - time.monotonic()) * SEARCH_SHARE
    result = gt.tune(decode_products(), space=SPACES, budget=given.budget, seconds=seconds)
    (given.out / "search.txt").write_text(result.summary(160) + "\n")
    winners = {}
    for row in result.rows:
        best = {}
        for choice in row.choices:
            if choice.space in SPACES:
                best.setdefault(choice.space, choice)
        winners[row.problem.name] = best
    facts = {
        name: {space: {"config": dict(c.config), "us": c.time_ns / 1e3} for space, c in best.items()}
        for name, best in winners.items()
    }
    (given.out / "winners.json").write_text(json.dumps(facts, indent=0) + "\n")
    print(f"search: {len(result.rows)} rows, {sum(map(len, winners.values()))} kernels to judge", flush=True)
    jobs = [
        BuildJob(Task(Problem.parse(n), device, s), c.config) for n, best in winners.items() for s, c in best.items()
    ]
    arms = defaultdict(dict)
    for name in decode_products():
        arms[name]["cublas"] = ("cublas", "")
    folder = given.out.resolve() / "kernels"
    folder.mkdir(exist_ok=True)
    for job, artifact in build_all(jobs, folder).items():
        if isinstance(artifact, BuildFailure):
            print(f"{job.task.key} {job.config}: {artifact.reason}", flush=True)
        else:
            arms[job.task.problem.name][job.task.space] = ("gemmtune", artifact.path)
    if given.engines:
        for name, its in build_engines(given.engines, device.arch, folder).items():
            arms[name] |= its
    (given.out / "arms.json").write_text(json.dumps(arms))
    left = max(20.0, ends - time.monotonic())
    command = [sys.executable, str(Path(__file__).with_name("judge.py")), str(given.out / "arms.json")]
    subprocess.run([*command, str(given.out / "judged.json"), str(left)], check=False, timeout=left + 60)
    print_report(json.loads((given.out / "judged.json").read_text()))


def build_all(jobs, folder: Path) -> dict:
    """Build all jobs on all cores but one."""
    pool = builder_pool(SPACES, folder, max(1, len(os.sched_getaffinity(0)) - 1), 100.0)
    for job in jobs:
        pool.submit(job)
    done = {}
    while pool.pending:
        wait_for_any([pool], 5)
        for outcome in pool.collect():
            done[outcome.job] = outcome.result
    pool.close()
    return done


def build_engines(engines: str, arch: str, folder: Path) -> dict[str, dict]:
    """Build vLLM's kernels for all products, each binary once."""
    wanted = {}
    for name in decode_products():
        m, n, k = map(int, name.split(":")[0].split("x"))
        wanted[name] = kernels_of(engines, m, n, k)
    builds = {one: None for its in wanted.values() for one in its.values()}
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        for number, (kind, what) in enumerate(builds):
            target = str(folder / f"engine{number}.o")
            builds[kind, what] = pool.submit(built, engines, arch, kind, what, target)
    results = {one: future.result() for one, future in builds.items()}
    for _, reason in results.values():
        if reason:
            print(reason, flush=True)
    return {
        name: {arm: (one[0], results[one][0]) for arm, one in its.items() if results[one][0]}
        for name, its in wanted.items()
    }


def print_report(rows) -> None:
    """Print each product's best of ours and of vLLM's over cuBLAS, and geometric means per m."""
    over = defaultdict(lambda: defaultdict(list))
    print(f"{'product':<24}{'cublas us':>10}{'gemv':>8}{'splitk':>8}{'best':>8}{'vllm':>8}{'share':>8}")
    for row in rows:
        ratio = row["over_cublas"]
        ours = {name: ratio[name] for name in SPACES if name in ratio}
        theirs = {name: its for name, its in ratio.items() if name.startswith("vllm")}
        best, other = max(ours, key=ours.get, default=None), max(theirs, key=theirs.get, default=None)
        m = int(row["problem"].split("x")[0])
        cells = [row["us"]["cublas"], *(ours.get(name, math.nan) for name in SPACES)]
        cells += [ours.get(best, math.nan), theirs.get(other, math.nan), row["share"].get(best, math.nan)]
        print(
            f"{row['problem']:<24}" + f"{cells[0]:10.2f}" + "".join(f"{cell:8.3f}" for cell in cells[1:]) + f"  {other}"
        )
        over[m]["ours"].append(max(1.0, cells[3]) if best else 1.0)
        over[m]["vllm"].append(max(1.0, cells[4]) if other else 1.0)
    for m in ROWS:
        if over[m]["ours"]:
            means = {who: math.exp(sum(map(math.log, its)) / len(its)) for who, its in over[m].items()}
            print(f"m {m}: best of cuBLAS and ours {means['ours']:.3f}, best of cuBLAS and vLLM {means['vllm']:.3f}")


def rehearse(given) -> None:
    """Build one seed per space and some of vLLM's kernels, without a GPU."""
    device = catalogue.device("H200")
    folder = given.out / "kernels"
    folder.mkdir(exist_ok=True)
    jobs = []
    for name in decode_products()[:2]:
        for space in SPACES:
            task = Task(Problem.parse(name), device, space)
            jobs.append(BuildJob(task, registry.space(space).seeds(task)[0]))
    for job, artifact in build_all(jobs, folder).items():
        print(job.task.key, artifact.path or artifact)
    if given.engines:
        print(build_engines(given.engines, device.arch, folder))


if __name__ == "__main__":
    main()
