"""Makes times of several GPUs of one kind comparable.

GPUs of one SKU are not equally fast (see experiments/measurement). Each GPU times the reference kernel of a problem
before anything else. A GPU's times are multiplied by the reference's time on the problem's first GPU over its own. The
database keeps samples and estimates as they were measured.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from gemmtune.engine.records.config import Config
from gemmtune.engine.records.device import Device
from gemmtune.engine.records.final import Final
from gemmtune.engine.records.measurement import Estimate, Measurement
from gemmtune.engine.records.task import Task
from gemmtune.engine.records.workload import Workload
from gemmtune.engine.seams.executor import Executor
from gemmtune.engine.store.database import Database
from gemmtune.engine.store.known import Wanted


class GpuNormalization:
    """Scales each problem's times to the GPU whose measurement entered the database first.

    The first reference level of a GPU at a problem counts. Levels of its later processes differ by noise alone, so
    that times of one GPU keep their ratios.
    """

    def __init__(self, database: Database) -> None:
        """Read the levels of earlier campaigns from `database`, when they are needed."""
        self._database = database
        self._levels: dict[tuple[Workload, Device, str], dict[tuple[str, str], float]] = {}

    def known(
        self, task: Task, executor: Executor, configs: Sequence[Config] | None = None
    ) -> dict[Config, Measurement]:
        """Return the stored measurements of a task as the executor measures it, normalized, in insertion order.

        Failures are included. Of `configs` alone, where they are given.

        Raises:
            StoreError: the database cannot be read.
        """
        digests = None if configs is None else [config.digest for config in configs]
        protocol, toolchain = executor.protocol(task), executor.toolchain(task)
        known = self._database.known(task, protocol, executor.evidence, toolchain, digests)
        return {config: self.normalize(measurement) for config, measurement in known.items()}

    def known_of_each(self, wanted: Iterable[Wanted], executor: Executor) -> Iterator[dict[Config, Measurement]]:
        """Yield what `known` returns, for each of many tasks."""
        for known in self._database.known_of_each(wanted, executor.evidence):
            yield {config: self.normalize(measurement) for config, measurement in known.items()}

    def normalize(self, measurement: Measurement) -> Measurement:
        """Return a measurement with its estimate scaled; the database must hold the measurement already."""
        estimate = measurement.estimate
        if estimate is None or estimate.level is None:
            return measurement
        levels = self._problem_levels(measurement.task.problem, measurement.task.device, measurement.protocol)
        levels.setdefault((estimate.level.reference, estimate.level.board), estimate.level.time_ns)
        return replace(measurement, estimate=_scaled(estimate, levels))

    def normalize_final(self, final: Final) -> Final:
        """Return a final with the finalists' estimates scaled as those of measurements."""
        levels = self._problem_levels(final.problem, final.device, final.protocol)
        finalists = (replace(finalist, estimate=_scaled(finalist.estimate, levels)) for finalist in final.finalists)
        return replace(final, finalists=tuple(finalists))

    def _problem_levels(self, problem: Workload, device: Device, protocol: str) -> dict[tuple[str, str], float]:
        """Return the reference's time by reference and board, the first GPU's first."""
        key = problem, device, protocol
        if key not in self._levels:
            found = self._database.levels(problem, device, protocol)
            self._levels[key] = {(level.reference, level.board): level.time_ns for level in found}
        return self._levels[key]


def _scaled(estimate: Estimate, levels: dict[tuple[str, str], float]) -> Estimate:
    level = estimate.level
    if level is None:
        return estimate
    own = levels.get((level.reference, level.board), level.time_ns)
    first = next((time_ns for (reference, _), time_ns in levels.items() if reference == level.reference), own)
    return estimate.scaled(first / own)
