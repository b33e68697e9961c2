"""What several GPUs of one kind measured, on one scale.

GPUs of one SKU are not equally fast: one config spreads by 0.7 to 3.5 % (H200). Each of them times the reference kernel
of a problem before anything else of it. A GPU's times are multiplied by what the reference takes on the problem's first
GPU over what it takes there; samples and estimates stay in the database as they were measured.
"""

from __future__ import annotations

from dataclasses import replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Estimate, Measurement, ReferenceLevel
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.records.task import Task
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database

__all__ = ["OneScale"]


class OneScale:
    """The scale of each problem: that of the GPU whose measurement the database got first.

    A GPU's level at a problem is its first one there. Those of later processes differ by noise alone, which is left
    out: what one GPU measured stays as it is among itself.
    """

    def __init__(self, database: Database) -> None:
        """Ask the database for what it is not told."""
        self._database = database
        self._levels: dict[tuple[Problem, Device, str], dict[tuple[str, str], float]] = {}

    def known(self, task: Task, executor: Executor) -> dict[Config, Measurement]:
        """What the database holds of a task as the executor measures it, failures included, in insertion order.

        Raises:
            StoreError: the database cannot be read.
        """
        protocol, toolchain = executor.protocol(task), executor.toolchain(task)
        known = self._database.known(task, protocol, executor.evidence, toolchain)
        return {config: self.of(measurement) for config, measurement in known.items()}

    def of(self, measurement: Measurement) -> Measurement:
        """The measurement on its problem's scale; it must be in the database already."""
        task, estimate = measurement.task, measurement.estimate
        if estimate is None or estimate.level is None:
            return measurement
        levels = self._of_problem(task.problem, task.device, measurement.protocol)
        levels.setdefault((estimate.level.reference, estimate.level.board), estimate.level.time_ns)
        return replace(measurement, estimate=_placed(estimate, estimate.level, levels))

    def of_final(self, final: Final) -> Final:
        """The final on its problem's scale, as measurements are."""
        levels = self._of_problem(final.problem, final.device, final.protocol)
        finalists = (
            f if f.estimate.level is None else replace(f, estimate=_placed(f.estimate, f.estimate.level, levels))
            for f in final.finalists
        )
        return replace(final, finalists=tuple(finalists))

    def _of_problem(self, problem: Problem, device: Device, protocol: str) -> dict[tuple[str, str], float]:
        terms = problem, device, protocol
        if terms not in self._levels:
            found = self._database.levels(problem, device, protocol)
            self._levels[terms] = {(level.reference, level.board): level.time_ns for level in found}
        return self._levels[terms]


def _placed(estimate: Estimate, level: ReferenceLevel, levels: dict[tuple[str, str], float]) -> Estimate:
    own = levels.get((level.reference, level.board), level.time_ns)
    first = next((time_ns for (reference, _), time_ns in levels.items() if reference == level.reference), own)
    return estimate.scaled(first / own)
