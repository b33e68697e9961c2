"""Sweep all feasible configs of the 12 problems of choose.py. Usage: truth.py --out FOLDER [--seconds N].

Problems run one after the other, on a host with several GPUs one per GPU, so that a stop at any time leaves complete
ones. OUT/truth gets a landscape per completed problem; a second run continues from there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from statistics import geometric_mean

from rehearsal import HERE, gpu, truth_names

from gemmtune.engine.api.recording import landscape_from
from gemmtune.engine.records.landscape import Landscape
from gemmtune.engine.records.measurement import Measurement, Status
from gemmtune.engine.seams import registry
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.landscapes.landscape_file import write_landscapes
from gemmtune.engine.toolchain.gpu_info import equal_gpus

ALL = "1000000"


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--out", type=Path, required=True, help="where databases and landscapes go")
    arguments.add_argument("--seconds", type=float, default=1e9, help="after which nothing goes on (default: never)")
    arguments.add_argument("--only", nargs="*", help="only these problems")
    given = arguments.parse_args()
    (given.out / "truth").mkdir(parents=True, exist_ok=True)
    names = given.only or truth_names()
    left = deque(name for name in names if not any(path.exists() for path in places(given.out, name)))
    print(f"{len(names) - len(left)} of {len(names)} problems are swept already", flush=True)
    gpus = equal_gpus() or ("",)
    end = time.monotonic() + given.seconds
    lanes = [threading.Thread(target=lane, args=(given.out, left, uuid, len(gpus), end)) for uuid in gpus]
    for each in lanes:
        each.start()
    for each in lanes:
        each.join()
    done = [name for name in names if any(path.exists() for path in places(given.out, name))]
    print(f"{len(done)} of {len(names)} problems are swept", flush=True)
    return 0


def places(out: Path, name: str) -> tuple[Path, Path]:
    """Return the possible files of a problem's landscape: just swept, or kept with the experiment."""
    file = f"{name.partition(':')[0]}.csv.gz"
    return out / "truth" / file, HERE / "truth" / file


def lane(out: Path, left: deque[str], uuid: str, lanes: int, end: float) -> None:
    """Sweep problems on one GPU, with its share of the cores."""
    builders = max((len(os.sched_getaffinity(0)) - lanes) // lanes, 1)
    environment = os.environ | ({"CUDA_VISIBLE_DEVICES": uuid} if lanes > 1 else {})
    while left and time.monotonic() < end - 5:
        name = left.popleft()
        work = out / "sweeps" / name.partition(":")[0]
        # Not `gemmtune sweep`: it gives every config all launches with the GPU at rest for most of the time, 680 s of
        # GPU for 2048x4096x4096. Here what is far behind is out after one, and the best eight meet in a final.
        sweep = f"--space triton_mm --sampler exhaustive --budget {ALL} --batch {ALL}".split()  # no batch is waited for
        command = [sys.executable, "-m", "gemmtune", "tune", "--problem", name, *sweep, "--out", str(work)]
        began, log = time.monotonic(), work.with_suffix(".log")
        log.parent.mkdir(parents=True, exist_ok=True)
        with (
            log.open("a") as said,
            subprocess.Popen(
                [*command, "--builders", str(builders)], env=environment, stdout=said, stderr=said
            ) as process,
        ):
            try:
                status: int | str = process.wait(max(end - time.monotonic(), 0))
            except subprocess.TimeoutExpired:
                process.terminate()  # in order: what is measured is kept
                status = "stopped"
        seconds = time.monotonic() - began
        if status != 0:
            print(f"{name}: {status} after {seconds:.0f} s, see {log}", flush=True)
            continue
        landscape = swept(work / "measurements.db", name)
        write_landscapes(places(out, name)[0], [landscape])
        shutil.rmtree(work)
        best = landscape.optimum_ns / 1e3
        print(f"{name}: {len(landscape.points)} configs in {seconds:.0f} s, best {best:.2f} µs", flush=True)


def swept(database: Path, name: str) -> Landscape:
    """Return the problem's measurements in the database without samples, so that the landscape stays small."""
    with Database.open(database, read_only=True) as store:
        [task] = [t for t in store.tasks() if (t.problem.name, t.space) == (name, "triton_mm")]
        measured = {m.config: m for m in store.measurements(task)}
        finals = store.finals(task.problem)
    times = final_times(measured, finals[-1]) if finals else {}
    found = landscape_from(task, registry.space(task.space), measured, measured)
    points = {
        config: replace(
            point, time_ns=times.get(config, point.time_ns), samples_ns=(), resources=None, build_seconds=None
        )
        for config, point in found.points.items()
    }
    return replace(found, points=points)


def final_times(measured: dict, final) -> dict:
    """Return the finalists' times by the final, at the level of their first measurements.

    The final ranks them better. Their mean stays, so that they compare with configs outside the final.
    """
    times = {f.config: f.estimate.time_ns for f in final.finalists if f.task.space == "triton_mm"}
    level = geometric_mean(_time_ns(measured[config]) / time_ns for config, time_ns in times.items())
    return {config: time_ns * level for config, time_ns in times.items()}


def _time_ns(measurement: Measurement) -> float:
    assert measurement.status is Status.OK
    assert measurement.estimate is not None
    return measurement.estimate.time_ns


if __name__ == "__main__":
    if gpu() is None:
        print("no GPU found: a rehearsal on what is recorded", flush=True)
    sys.exit(main())
