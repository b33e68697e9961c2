"""Record landscapes of other families. Usage: record.py --out FILE.csv.gz [--sweep FOLDER] [--seconds N] [DATABASE].

Taken are the tasks of the databases of which at least 500 configs were measured and one was right. With `--sweep`, the
problems below are swept first, on the GPUs of this host; a run that was stopped goes on with the same folder.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import gemmtune as gt
from gemmtune.engine.execution.gpu_normalization import GpuNormalization
from gemmtune.engine.records.landscape import Landscape, Point
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.csv_reader import recorded_params

BY_ROWS, BY_TENSOR = "epilogue=mul(column[fp32]).mul(row[fp32])", "epilogue=mul(scalar[fp32]).mul(scalar2[fp32])"
SWEEPS = {
    "epilogues": (
        "triton_mm",
        "32x2880x2880:bf16:nt:epilogue=gelu_tanh",
        "32x8192x2048:bf16:nt:epilogue=mul(matrix.silu)",
        "32x4096x3072:bf16:nt:epilogue=add(matrix).relu",
    ),
    "fp8": (
        "triton_mm",
        f"32x7168x2048:e4m3:nt:{BY_ROWS}",
        f"32x4096x4096:e4m3:nt:{BY_ROWS}.silu.mul(matrix)",
        f"32x2112x7168:e4m3:nt:{BY_TENSOR}",
    ),
    "grouped": (
        "quack_grouped",
        "grouped:rows:m64:g8:n2048:k1024:bf16:nt",
        "grouped:rows:m256:g8:n4096:k1024:bf16:nt",
        "grouped:rows:m512:g40:n1536:k512:bf16:nt",
        "grouped:rows:m1024:g16:n3200:k1024:bf16:nt",
    ),
}
"""Space and problems by family: 526 to 765 feasible configs each on an H100. The grouped ones share their builds."""
LEAST = 500


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("databases", nargs="*", type=Path)
    arguments.add_argument("--out", type=Path, required=True)
    arguments.add_argument("--sweep", type=Path, help="folder of the sweeps' databases")
    arguments.add_argument("--seconds", type=float, default=1e9, help="after which no sweep goes on")
    given = arguments.parse_args()
    end = time.monotonic() + given.seconds
    ended = {name: sweep(given.sweep / name, *of, end=end) for name, of in SWEEPS.items()} if given.sweep else {}
    databases = [given.sweep / name / "measurements.db" for name, is_whole in ended.items() if is_whole]
    found = [landscape for path in (*given.databases, *databases) for landscape in swept(path)]
    if found:
        gt.write_landscapes(given.out, found)
    for landscape in found:
        print(f"{landscape.name}: {len(landscape.points)} configs, best {landscape.optimum_ns / 1e3:.2f} µs")
    return 0 if all(ended.values()) else 1


def sweep(folder: Path, space: str, *problems: str, end: float) -> bool:
    """Sweep problems with `gemmtune sweep` until `end` by the monotonic clock; return whether all was measured."""
    named = [word for problem in problems for word in ("--problem", problem)]
    command = [sys.executable, "-m", "gemmtune", "sweep", "--space", space, *named, "--out", str(folder)]
    began = time.monotonic()
    with subprocess.Popen(command) as process:
        try:
            status: int | str = process.wait(max(0.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.terminate()  # in order: what is measured is kept
            status = "stopped"
    print(f"{folder.name}: {status} after {time.monotonic() - began:.0f} s", flush=True)
    return status == 0


def swept(path: Path) -> Iterator[Landscape]:
    """Yield the landscape of each task of a database that was swept."""
    with Database.open(path, read_only=True) as database:
        normalization = GpuNormalization(database)
        for task in database.tasks():
            measured = {m.config: normalization.normalize(m) for m in database.measurements(task)}
            if len(measured) >= LEAST and any(m.estimate for m in measured.values()):
                yield landscape_of(task, measured)


def landscape_of(task: Task, measured: Mapping[gt.Config, Measurement]) -> Landscape:
    """Return a task's landscape with the parameters that were measured; times keep four digits, without samples."""
    first = next(iter(measured.values()))
    points = {
        config: Point(config, m.status, m.estimate and float(f"{m.estimate.time_ns:.4g}"))
        for config, m in sorted(measured.items(), key=lambda item: item[0].json)
    }
    context = {"space": task.space, "device": task.device.sku, "protocol": first.protocol}
    context |= {"toolchain": first.toolchain.text, "date": min(m.created_at for m in measured.values())[:10]}
    return Landscape(task.problem.name, "", recorded_params(tuple(first.config), points), points, task.problem, context)


if __name__ == "__main__":
    sys.exit(main())
