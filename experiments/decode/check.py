"""Measure configs that cover each value of each param on ragged problems, and list every one that is not right."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from pathlib import Path

from products import RAGGED

from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.measure import worker
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry

DEADLINE_SECONDS = 12.0  # a hang ends its worker, and costs this long
TOGETHER = (("share_a", "warps_n"), ("num_stages", "share_a"))
"""Params whose values are covered in pairs: warps that share A wait for each other."""


def covering(space, task, extra: int, seed: int = 0) -> list:
    """Few feasible configs that together have every value of every param, each pair of some, and more at random."""
    feasible = [config for config in space.points(task) if space.check(task, config)]
    random.Random(seed).shuffle(feasible)
    covered = {config: {*config.items(), *pairs_of(config)} for config in feasible}
    missing = set().union(*covered.values())
    chosen = []
    while missing:
        best = max(feasible, key=lambda config: len(missing & covered[config]))
        chosen.append(best)
        missing -= covered[best]
    return chosen + [config for config in feasible[:extra] if config not in chosen]


def pairs_of(config) -> list[tuple]:
    return [(one, config[one], other, config[other]) for one, other in TOGETHER if {one, other} <= set(config)]


def check(device, out: Path, seconds: float, extra: int = 0) -> bool:
    """Return whether all configs are right within the time."""
    worker._RUN_SECONDS = DEADLINE_SECONDS
    executor = LocalExecutor(tuple(RAGGED), "graph-cold-l2", early_stopping=True, notify=print)
    jobs = {}
    for name, problems in RAGGED.items():
        space = registry.space(name)
        for problem in problems:
            task = Task(Problem.parse(problem), device, name)
            for config in covering(space, task, extra):
                jobs[task, config] = None
    began = time.monotonic()
    print(f"check: {len(jobs)} configs of {sum(map(len, RAGGED.values()))} tasks", flush=True)
    for task, config in jobs:
        executor.submit(task, config)
    while any(found is None for found in jobs.values()) and time.monotonic() - began < seconds:
        for found in executor.collect(1.0):
            jobs[found.task, found.config] = found
            if found.status.value != "ok":
                print(f"{found.status.value}: {found.task.key} {found.config}: {found.reason}", flush=True)
    executor.close()
    counts = Counter("not done" if found is None else found.status.value for found in jobs.values())
    rows = [
        {
            "task": task.key,
            "config": dict(config),
            "status": None if found is None else found.status.value,
            "reason": None if found is None else found.reason,
            "error": None if found is None else found.error_norm,
            "us": None if found is None or not found.samples_ns else min(found.samples_ns) / 1e3,
        }
        for (task, config), found in jobs.items()
    ]
    (out / "check.json").write_text(json.dumps(rows, indent=0) + "\n")
    print(f"check: {dict(counts)} in {time.monotonic() - began:.0f} s", flush=True)
    return counts == {"ok": len(jobs)}
