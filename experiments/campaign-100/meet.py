"""Compare the campaign's choices with the best of the sweeps in finals. Usage: meet.py FOLDER OUT.json. Needs a GPU.

A sweep measures each of thousands of configs once, while others build. A choice that was unlucky there is far behind in
the landscape, but not on the GPU. For each problem the script builds the campaign's `triton_mm` choice and all swept
configs within a tenth of the best. It holds a final between them. Then the choice is in a final with the best eight.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from rehearsal import truths

from gemmtune.engine.measure.bench import Bench
from gemmtune.engine.measure.builder import BuildJob, builder_pool
from gemmtune.engine.measure.jobs import FinalJob, MeasureJob
from gemmtune.engine.measure.protocols import protocol
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.task import Task
from gemmtune.engine.tables.table_file import read_table
from gemmtune.engine.toolchain.gpu_info import present_device

SPACE, BUILD_SECONDS = "triton_mm", 100.0
LEAST, WITHIN = 8, 1.1  # configs of a sweep: so many, and all up to so many times its best time


def main() -> None:
    folder, result = Path(sys.argv[1]), Path(sys.argv[2])
    device = present_device()
    if device is None:
        raise SystemExit("no GPU found: finals are held on one")
    meetings = who_meet(folder, device)
    with tempfile.TemporaryDirectory() as work:
        built = build([BuildJob(task, config) for task, configs in meetings.items() for config in configs], Path(work))
        bench = Bench(protocol("graph-cold-l2"))
        rows = []
        for task, configs in meetings.items():
            jobs = [MeasureJob(task, config, built[task, config]) for config in configs]
            first = bench(FinalJob(tuple(jobs)))
            again = sorted({0, *(s.number for s in first.ranking[:LEAST])})
            last = bench(FinalJob(tuple(jobs[number] for number in again)))
            failed = [reason for _, reason in (*first.failed, *last.failed)]
            found = {"met": len(configs), **standing([configs[number] for number in again], last.ranking)}
            rows.append({"problem": task.problem.name} | found | ({"failed": failed} if failed else {}))
            print(json.dumps(rows[-1]), flush=True)
            result.write_text(json.dumps({"rows": rows}) + "\n")  # at once: time may be over before the next


def who_meet(folder: Path, device: Device) -> dict[Task, tuple[Config, ...]]:
    """Return the campaign's choice, first, and the best of the sweep, by their task on this device.

    Raises:
        SystemExit: the campaign chose nothing for a swept problem.
    """
    swept = truths(folder)
    rows = {row.problem.name: row for row in read_table(folder / "campaign" / "table.json").rows}
    found = {}
    for name in sorted(swept):
        chosen = [choice.config for choice in rows[name].choices if choice.space == SPACE][:1] if name in rows else []
        if not chosen:
            raise SystemExit(f"the campaign's table has no choice of {SPACE} for {name}, which was swept: tune again")
        points = [point for point in swept[name].points.values() if point.time_ns is not None]
        points.sort(key=lambda point: point.time_ns)
        near = sum(point.time_ns <= WITHIN * points[0].time_ns for point in points)
        best = points[: max(LEAST, near)]
        task = Task(rows[name].problem, device, SPACE)
        found[task] = tuple(dict.fromkeys((*chosen, *(point.config for point in best))))
    return found


def build(jobs: list[BuildJob], folder: Path) -> dict:
    """Build the configs and return their artifacts by task and config."""
    pool = builder_pool((SPACE,), folder, max(1, len(os.sched_getaffinity(0)) - 1), BUILD_SECONDS)
    with closing(pool):
        return {(outcome.job.task, outcome.job.config): outcome.result for outcome in pool.run(jobs)}


def standing(configs, standings) -> dict:
    """Return the choice's time, the fastest time and the gap; a choice that failed has 0 of the optimum."""
    chosen = next((s for s in standings if s.number == 0), None)
    if chosen is None:
        return {"of_optimum": 0.0}
    fastest = min(standings, key=lambda s: s.estimate.time_ns)
    return {
        "chosen_us": round(chosen.estimate.time_ns / 1e3, 3),
        "best_us": round(fastest.estimate.time_ns / 1e3, 3),
        "of_optimum": round(fastest.estimate.time_ns / chosen.estimate.time_ns, 4),
        "behind": [round(end, 4) for end in chosen.behind],
        "best": dict(configs[fastest.number]),
    }


if __name__ == "__main__":
    main()
