"""Measure every candidate, then hold a mixed final per problem. Usage: sweep.py OUT ARGUMENTS; run.py starts it.

Candidates go through builders, worker, screening and database, as in a campaign. Measurements in the database are not
repeated.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import closing
from pathlib import Path

from problems import SPACES, tasks, thinned

from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.report.progress.display import show_progress
from gemmtune.engine.scheduling.scheduler import Scheduler
from gemmtune.engine.scheduling.task_search import exhaustive_search
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.toolchain.gpu_info import present_device

FROM_EACH = {"aten": 1, "cute_gemm": 3, "quack_gemm": 3, "triton_mm": 2}


def main() -> None:
    out, given = Path(sys.argv[1]), json.loads(sys.argv[2])
    device, objective = present_device(), registry.objective("latency")
    searches = [
        exhaustive_search(task, registry.space(task.space), thinned(configs, given["limit"]))
        for task, configs in tasks(device, tuple(given["problems"])).items()
    ]
    executor = LocalExecutor(SPACES, objective.protocol)
    with closing(executor), Database.open(out / "measurements.db") as store, show_progress(quiet=False) as callbacks:
        began = time.perf_counter()
        Scheduler(searches, executor, store, objective, callbacks, hold_finals=False).run()
        facts = {"configs": sum(s.budget for s in searches), "seconds": round(time.perf_counter() - began, 1)}
        (out / "sweep.json").write_text(json.dumps(facts))
        began = time.perf_counter()
        facts["finals"] = hold_finals(searches, executor, store, objective, callbacks)
        facts["final_seconds"] = round(time.perf_counter() - began, 1)
        (out / "sweep.json").write_text(json.dumps(facts))


def hold_finals(searches, executor, store, objective, callbacks) -> dict[str, list[dict]]:
    """Hold a final per problem between the best of every space; return each final as JSON."""
    of_problem, held = {}, {}
    for search in searches:
        task = search.task
        known = store.known(task, executor.protocol(task), executor.evidence, executor.toolchain(task))
        ok = sorted((m for m in known.values() if m.status is Status.OK), key=objective.score)
        best = [(task, m.config) for m in ok[: FROM_EACH[task.space]]]
        of_problem.setdefault(task.problem, []).extend(best)
    waiting = {problem: candidates for problem, candidates in of_problem.items() if candidates}
    for candidates in waiting.values():
        executor.hold_final(candidates)
    while waiting:
        for over in executor.collect(1.0):
            del waiting[over.problem]
            for callback in callbacks:
                callback.on_final(over)
            if isinstance(over, Final):
                store.add_final(over)
            held[over.problem.name] = places(over)
    return held


def places(final) -> list[dict]:
    """Return a final as JSON: its ranking, its failed finalists, or the reason why it was not held."""
    if not isinstance(final, Final):
        return [{"unsettled": final.reason}]
    stood = [
        {
            "space": f.task.space,
            "config": dict(f.config),
            "us": round(f.estimate.time_ns / 1e3, 3),
            "behind": [round(x, 5) for x in f.behind],
            "launches": len(f.samples_ns),
        }
        for f in final.finalists
    ]
    return stood + [{"space": r.task.space, "config": dict(r.config), "refuted": r.reason} for r in final.failed]


if __name__ == "__main__":
    main()
