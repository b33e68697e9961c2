"""Build every binary of the CuTe spaces once. Usage: build.py OUT ARGUMENTS; run.py starts it.

Needs no GPU. The binaries are stored in OUT/artifacts, like the shared builds of a campaign. QuACK's max_swizzle_size
is an argument of the launch, but part of the space's key. A binary is therefore stored under the key of each value.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter, defaultdict
from contextlib import closing
from dataclasses import replace
from functools import cache
from pathlib import Path

from problems import CUTE_SPACES, tasks, thinned

from gemmtune.engine.measure.builder import BuildJob, SharedBuilds, builder_pool
from gemmtune.engine.processes.process_pool import wait_for_any
from gemmtune.engine.records import catalogue
from gemmtune.engine.records.artifact import Artifact
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams import registry
from gemmtune.engine.toolchain.gpu_info import present_device

SWIZZLE = "max_swizzle_size"
DEADLINE_SECONDS = 60.0
find_space = cache(registry.space)  # finding a plug-in by name takes 9 ms


def binaries(of_task: dict[Task, tuple[Config, ...]], limit: int | None) -> dict[str, dict[str, BuildJob]]:
    """Return every binary of the CuTe spaces: its key with QuACK's own swizzle, and its jobs by their own keys."""
    found = defaultdict(dict)
    for task, configs in of_task.items():
        if task.space in CUTE_SPACES:
            space = find_space(task.space)
            for config in thinned(configs, limit):
                usual = Config({**config, SWIZZLE: 8}) if SWIZZLE in config else config
                found[space.artifact_key(task, usual)][space.artifact_key(task, config)] = BuildJob(task, config)
    return found


def main() -> None:
    out, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    device = present_device() or catalogue.device("H200")
    wanted = binaries(tasks(device, tuple(given["problems"])), given["limit"])
    folder, builders = out / "artifacts", max(1, len(os.sched_getaffinity(0)) - 1)
    folder.mkdir(exist_ok=True)
    shared, built, failed, began = SharedBuilds(folder / "shared"), [], [], time.perf_counter()
    with closing(builder_pool(CUTE_SPACES, folder, builders, DEADLINE_SECONDS)) as pool:
        jobs = {next(iter(of_binary.values())): of_binary for of_binary in wanted.values()}
        for job in jobs:
            pool.submit(job)
        while pool.pending:
            wait_for_any([pool], 5)
            for outcome in pool.collect():
                artifact = outcome.result
                if not isinstance(artifact, Artifact):
                    failed.append([outcome.job.task.key, outcome.job.config.json, outcome.reason or artifact.reason])
                    continue
                built.append(artifact)
                for key, other in jobs[outcome.job].items():
                    if key != artifact.key:  # that one the builder has kept
                        shared.add(replace(artifact, key=key, launch=launch(artifact, other.config)))
                Path(artifact.path).unlink()
        seconds = time.perf_counter() - began
    facts = {
        "binaries": len(wanted),
        "of_space": dict(Counter(next(iter(of.values())).task.space for of in wanted.values())),
        "keys": sum(len(of_binary) for of_binary in wanted.values()),
        "built": len(built),
        "failed": failed,
        "with_spills": sum(bool(a.resources and a.resources.spill_bytes) for a in built),
        "builders": builders,
        "wall_seconds": round(seconds, 1),
        "core_seconds": round(sum(a.build_seconds for a in built), 1),
        "a_second": round(len(built) / seconds, 2),
    }
    (out / "build.json").write_text(json.dumps(facts))
    print(f"{facts['built']} of {facts['binaries']} binaries built in {seconds:.1f} s, {facts['a_second']} a second")


def launch(artifact: Artifact, config: Config) -> tuple[tuple[str, int | str], ...]:
    """Return the launch arguments of the binary, with the config's swizzle."""
    return tuple((name, config[SWIZZLE] if name == SWIZZLE else value) for name, value in artifact.launch)


if __name__ == "__main__":
    main()
