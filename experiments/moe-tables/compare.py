"""Time the table's configs against what vLLM runs now, with torch alone: no database, no timing of gemmtune's.

    python compare.py FOLDER SECONDS

Both kernels of a row are built, checked against the layer's products in float64, and timed in alternating rounds. Each
launch is timed alone between events, on another operand set than the last, behind a write of 256 MiB.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 10
SETS = 3
EVICTED_BYTES = 2**28


def build(job):
    """Build one config in a process without a GPU; return its artifact, or the reason why there is none."""
    from gemmtune.engine.records.config import Config
    from gemmtune.engine.records.task import Task
    from gemmtune.engine.seams import registry
    from gemmtune.engine.seams.kinds import parse_workload
    from gemmtune.engine.seams.space import BuildError

    name, device, text, folder = job
    work = parse_workload(name)
    try:
        return registry.space(work.kind).build(Task(work, device, work.kind), Config.from_json(text), Path(folder))
    except BuildError as error:
        return str(error)


def main(out: Path, seconds: float) -> None:
    import os

    end = time.monotonic() + seconds
    from gemmtune.engine.records.task import Task
    from gemmtune.engine.seams import registry
    from gemmtune.engine.tables.table_file import read_table
    from gemmtune.spaces.serving.shipped import deployed

    table = read_table(out / "tuned/table.json")
    spaces = {row.problem.kind: registry.space(row.problem.kind) for row in table.rows}
    pairs = []
    for row in table.rows:
        ours, now = row.choices[0].config, deployed(row.problem, spaces[row.problem.kind].engine, table.device)
        assert now.config is not None
        claimed = row.baseline.time_ns / row.choices[0].time_ns if row.baseline else 1.0
        pairs.append((row.problem, ours, now, claimed))
    with tempfile.TemporaryDirectory() as folder:
        jobs = {}
        for work, ours, now, _ in (pair for pair in pairs if pair[1] != pair[2].config):
            for config in {ours, now.config}:
                key = spaces[work.kind].artifact_key(Task(work, table.device, work.kind), config)
                jobs.setdefault(key, (work.name, table.device, config.json, folder))
        os.environ["CUDA_VISIBLE_DEVICES"], before = "", os.environ.get("CUDA_VISIBLE_DEVICES")
        with multiprocessing.get_context("spawn").Pool(min(16, os.cpu_count() or 1)) as pool:
            built = dict(zip(jobs, pool.map(build, jobs.values(), chunksize=1), strict=True))
        if before is None:
            del os.environ["CUDA_VISIBLE_DEVICES"]
        else:
            os.environ["CUDA_VISIBLE_DEVICES"] = before
        rows = []
        try:
            for work, ours, now, claimed in sorted(pairs, key=lambda pair: pair[0].tokens):
                if time.monotonic() > end:
                    break
                try:
                    rows.append(compared(spaces[work.kind], table.device, work, ours, now, claimed, built))
                except Exception as error:  # one row's failure is its result, and not the end of the others
                    reason = f"{type(error).__name__}: {error}"
                    rows.append(row_of(work, ours, now, claimed, [], [reason]))
        finally:
            write(out, spaces, rows, len(pairs) - len(rows))
    if wrong := [(row["problem"], row["wrong"]) for row in rows if row["wrong"]]:
        raise SystemExit(f"{len(wrong)} rows failed; the first: {wrong[0][0]}: {wrong[0][1][0]}")


def write(out: Path, spaces, rows, missing) -> None:
    """Write what was compared, also if a later row failed."""
    import torch

    toolchains = [spaces[kind].toolchain().text for kind in sorted(spaces)]
    record = {
        "device": torch.cuda.get_device_name(),
        "toolchain": f"torch {torch.__version__}, {'; '.join(toolchains)}",
        "missing": missing,
        "rows": rows,
    }
    (out / "compared.json").write_text(json.dumps(record, indent=1) + "\n")


def compared(space, device, work, ours, now, claimed, built):
    """Time one row's two configs; a row that keeps the engine's config is not timed."""
    import torch

    from gemmtune.engine.measure.operands.operands import make_operands
    from gemmtune.engine.measure.operands.reference import ReferenceResult, poison
    from gemmtune.engine.records.task import Task

    if ours == now.config:
        return row_of(work, ours, now, claimed, [], [])
    task = Task(work, device, work.kind)
    sets = [make_operands(work, torch.device("cuda"), number) for number in range(SETS)]
    reference = ReferenceResult(work, sets[0])
    kernels, wrong = [], []
    for config in (ours, now.config):
        artifact = built[space.artifact_key(task, config)]
        if isinstance(artifact, str):
            return row_of(work, ours, now, claimed, [], [artifact])
        kernels.append(space.load(artifact, task))
        for output in sets[0].outputs:
            poison(output)
        kernels[-1](*sets[0].arguments)
        reason = reference.check(*sets[0].outputs).reason
        wrong += [f"{config.json}: {reason}"] if reason else []
    cold = timed_cold(kernels, sets)
    for kernel in kernels:
        kernel.close()
    return row_of(work, ours, now, claimed, cold, wrong)


def timed_cold(kernels, sets):
    """Return the median time of each kernel in microseconds, both in each round and first in turns."""
    import torch

    scratch = torch.empty(EVICTED_BYTES, dtype=torch.int8, device="cuda")
    times = [[] for _ in kernels]
    for number in range(ROUNDS):
        order = (0, 1) if number % 2 else (1, 0)
        for which in order:
            for operands in sets:
                scratch.fill_(number)
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                torch.cuda._sleep(200_000)  # the host is ahead when the first event comes
                start.record()
                kernels[which](*operands.arguments)
                stop.record()
                torch.cuda.synchronize()
                times[which].append(1e3 * start.elapsed_time(stop))
    return [statistics.median(each) for each in times]


def row_of(work, ours, now, claimed, cold, wrong):
    return {
        "problem": work.name,
        "tokens": work.tokens,
        "ours": ours.json,
        "deployed": now.config.json,
        "deployed_from": now.file,
        "claimed": round(claimed, 4),
        "cold_us": cold,
        "same": ours == now.config,
        "cold_ratio": round(cold[1] / cold[0], 4) if cold else float(ours == now.config),
        "wrong": wrong,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]))
