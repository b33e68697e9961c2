"""Split builds into their parts: render and compile configs of a campaign again, on one core. Needs no GPU.

Usage: builds.py DATABASE OUT.json; run.py starts it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from triton import knobs

from gemmtune.engine.records.measurement import Status
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.spaces.inductor import build as inductor_build

NUMBER = 32
PARTS = {"render": "rendering", "compiled": "compiling", "write_cubin": "reading registers"}
"""Functions of spaces/inductor/build.py, by the part of a build that they are."""


def main() -> None:
    with Database.open(sys.argv[1], read_only=True) as store:
        built = [m for m in store.measurements() if m.task.space == "triton_mm" and m.status is Status.OK]
    chosen = random.Random(0).sample(sorted(built, key=lambda m: (m.task.key, m.config.json)), min(NUMBER, len(built)))
    spent: Counter[str] = Counter()
    space = registry.space("triton_mm")
    for name, part in PARTS.items():
        setattr(inductor_build, name, timed(getattr(inductor_build, name), spent, part))
    with tempfile.TemporaryDirectory() as folder:
        space.build(chosen[0].task, chosen[0].config, Path(folder))  # with the imports
        spent.clear()
        stages: Counter[str] = Counter()

        def heard(*, times: knobs.CompileTimes, **_others: object) -> None:
            stages["making the first IR"] += times.ir_initialization
            stages.update(dict(times.lowering_stages))

        knobs.compilation.listener = heard
        began, compilers = time.perf_counter(), os.times()
        for m in chosen:
            space.build(m.task, m.config, Path(folder))
        wall, after = time.perf_counter() - began, os.times()
    children = after.children_user + after.children_system - compilers.children_user - compilers.children_system
    spent["the rest"] = wall - sum(spent.values())
    found = {
        "configs": len(chosen),
        "seconds_a_build": round(wall / len(chosen), 4),
        "shares": {part: round(seconds / wall, 4) for part, seconds in spent.items()},
        "shares_of_compiling": {stage: round(micros / 1e6 / wall, 4) for stage, micros in stages.items()},
        "share_of_ptxas_and_cuobjdump": round(children / wall, 4),
    }
    Path(sys.argv[2]).write_text(json.dumps(found) + "\n")
    print(json.dumps(found))


def timed(function: Callable, spent: Counter[str], part: str) -> Callable:
    def call(*arguments, **named):
        began = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[part] += time.perf_counter() - began

    return call


if __name__ == "__main__":
    main()
