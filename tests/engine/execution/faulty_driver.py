"""Drives an executor over the faulty space, in a process of its own, and prints what came of it as one JSON object.

Usage: faulty_driver.py faults [ray] | finals | loses [ARGUMENT OF GEMMTUNE]...
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from faulty_space import FAULTS, WAITING

from gemmtune.engine import cli
from gemmtune.engine.execution import hosts
from gemmtune.engine.execution.local import LocalExecutor
from gemmtune.engine.execution.pipeline import BuildMeasurePipeline
from gemmtune.engine.records.config import Config
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.gemm.problem import Problem
from gemmtune.engine.records.measurement import Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.verdict import BoardVerdict
from gemmtune.engine.seams.executor import Finished
from gemmtune.engine.toolchain.gpu_info import present_device

PROTOCOL = "graph-cold-l2"


def faults(task: Task, folder: Path, where: str = "local") -> dict[str, object]:
    """Measure every fault and a problem that does not fit the GPU, and kill one process."""
    huge = Task(Problem.parse("900000x900000x1024"), task.device, task.space)
    executor: BuildMeasurePipeline
    notices: list[str] = []
    if where == "ray":
        from gemmtune.engine.execution.ray.cluster import Cluster
        from gemmtune.engine.execution.ray.executor import RayExecutor

        executor = RayExecutor(Cluster(), task.device, [task.space], PROTOCOL, builders=2, notify=notices.append)
    else:
        executor = LocalExecutor([task.space], PROTOCOL, builders=2, notify=notices.append)
    for name in FAULTS:
        executor.submit(task, Config({"fault": name}))
    executor.submit(huge, Config({"fault": "none"}))
    finished: list[Finished] = []
    killed = False
    while len(finished) < len(FAULTS) + 1:
        finished += _results(executor, 0.2)
        if not killed and (folder / WAITING).exists():
            os.kill(int((folder / WAITING).read_text()), signal.SIGKILL)
            killed = True
    executor.close()
    measured = [m for m in finished if isinstance(m, Measurement)]
    return {
        "notices": notices,
        "measurements": [
            ["huge" if m.task == huge else m.config["fault"], m.status, m.reason, len(m.samples_ns)] for m in measured
        ],
    }


def finals(task: Task, folder: Path) -> dict[str, object]:
    """Measure four correct configs, and hold finals after three of them began to fail."""
    notices: list[str] = []
    executor = LocalExecutor([task.space], PROTOCOL, builders=2, notify=notices.append)
    measured = ("none", "turns illegal", "turns wrong", "none again")
    for name in measured:
        executor.submit(task, Config({"fault": name}))
    statuses = {str(m.config["fault"]): m.status for m in _drain(executor, len(measured)) if isinstance(m, Measurement)}
    (folder / "turned").touch()
    fields = ((*measured,), ("none", "turns deadly"), ("none", "none again"))
    held = [_held(executor, task, names) for names in fields]
    executor.close()
    return {"statuses": statuses, "finals": held, "notices": notices}


def _held(executor: LocalExecutor, task: Task, names: Sequence[str]) -> dict[str, object]:
    executor.hold_final([(task, Config({"fault": name})) for name in names])
    (final,) = _drain(executor, 1)
    if not isinstance(final, Final):
        return {"not held": getattr(final, "reason", "")}
    return {
        "finalists": [finalist.config["fault"] for finalist in final.finalists],
        "tie_band": [finalist.config["fault"] for finalist in final.tie_band],
        "regret_bound": final.regret_bound,
        "failed": {str(out.config["fault"]): out.reason for out in final.failed},
    }


def _drain(executor: LocalExecutor, count: int) -> list[Finished]:
    finished: list[Finished] = []
    while len(finished) < count:
        finished += _results(executor, 1.0)
    return finished


def _results(executor: BuildMeasurePipeline, timeout_seconds: float) -> list[Finished]:
    """Return what has finished, without verdicts on boards."""
    return [each for each in executor.collect(timeout_seconds) if not isinstance(each, BoardVerdict)]


class Loses(LocalExecutor):
    """Hides the GPU from processes that start after the first result; the spare process still sees it."""

    def collect(self, timeout_seconds: float) -> list[Finished]:
        finished = super().collect(timeout_seconds)
        if finished:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        return finished


def main() -> None:
    what, *arguments = sys.argv[1:]
    if what == "loses":
        vars(hosts)["LocalExecutor"] = Loses
        sys.argv = ["gemmtune", *arguments]
        cli.main()
    device = present_device()
    assert device is not None
    task = Task(Problem.parse("64x512x256"), device, "faulty")
    drive = {"faults": faults, "finals": finals}[what]
    print(json.dumps(drive(task, Path(os.environ["FAULTY_FOLDER"]), *arguments)))  # noqa: T201 (a script's answer)


if __name__ == "__main__":
    main()
