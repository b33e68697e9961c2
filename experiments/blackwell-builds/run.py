"""Build a sample of feasible `cute_gemm` configs for a B200, without a GPU. Usage: run.py --json OUT [--sample 200]."""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.search.enumeration import enumerate_space

# Decode, prefill, another layout, another type. Sizes are arguments of the kernels, layouts and types are not.
PROBLEMS = ("16x4096x4096:bf16:nt", "4096x4096x4096:bf16:nt", "2048x8192x4096:fp16:nn", "512x28672x4096:bf16:tn")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", type=Path, required=True, help="where the results go")
    arguments.add_argument("--sample", type=int, default=200, help="configs to build (default 200)")
    given = arguments.parse_args()
    space, device, jobs, rows = registry.space("cute_gemm"), catalogue.device("B200"), [], []
    for text in PROBLEMS:
        task = Task(Problem.parse(text), device, "cute_gemm")
        count = enumerate_space(space, task)
        rows.append({"problem": text, "points": count.points, "feasible": len(count.feasible)})
        jobs += [BuildJob(task, config) for config in count.feasible]
    chosen = random.Random(0).sample(jobs, given.sample)
    cores = len(os.sched_getaffinity(0))
    began = time.perf_counter()
    outcomes = build(chosen, cores)
    seconds = time.perf_counter() - began
    built = [o.result for o in outcomes if isinstance(o.result, Artifact)]
    failed = [
        {"problem": o.job.task.problem.name, "config": dict(o.job.config), "why": o.reason or o.result.reason}
        for o in outcomes
        if not isinstance(o.result, Artifact)
    ]
    operators = Counter(str(o.job.config["operator"]) for o in outcomes)
    facts = {
        "device": device.sku,
        "toolchain": space.toolchain().text,
        "date": datetime.now(UTC).date().isoformat(),
        "problems": rows,
        "sampled": len(chosen),
        "operators": dict(operators),
        "built": len(built),
        "failed": failed,
        "with_spills": sum(bool(a.resources and a.resources.spill_bytes) for a in built),
        "cores": cores,
        "seconds": round(seconds, 1),
        "builds_a_second_and_core": round(len(chosen) / seconds / cores, 2),
    }
    given.json.write_text(json.dumps(facts, indent=1) + "\n")
    for row in rows:
        print(f"{row['problem']:<26} {row['feasible']:5d} of {row['points']} points feasible")
    print(f"{len(built)} of {len(chosen)} built in {seconds:.0f} s on {cores} cores; {facts['with_spills']} spill")
    for failure in failed:
        print(f"  {failure['problem']} {failure['config']}: {failure['why']}")


def build(jobs, cores: int) -> list:
    """Build all jobs in builder processes, as a campaign does, and return their outcomes."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(builder_pool(("cute_gemm",), Path(folder), cores, 120.0)) as pool,
    ):
        return list(pool.run(jobs))


if __name__ == "__main__":
    main()
