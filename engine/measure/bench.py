"""What the worker process does with one artifact: load, check, time. Imports torch and uses the GPU."""

from __future__ import annotations

from collections import OrderedDict

import torch

from gemmtune.engine.measure.operands import Operands, make_operands
from gemmtune.engine.measure.process import Last
from gemmtune.engine.measure.reference import Reference
from gemmtune.engine.measure.telemetry import Telemetry
from gemmtune.engine.measure.timing import ColdL2Events
from gemmtune.engine.measure.worker import MeasureJob, Reading
from gemmtune.engine.records.errors import ContractError
from gemmtune.engine.records.measurement import Status
from gemmtune.engine.records.problem import Problem
from gemmtune.engine.seams import registry
from gemmtune.engine.seams.space import Launchable

__all__ = ["Bench"]

_KEPT_SHARE_OF_MEMORY = 0.3


class Bench:
    """One GPU's bench. Called with jobs, one at a time."""

    def __init__(self, protocol: str) -> None:
        """Take the current GPU.

        Raises:
            ContractError: no such protocol.
        """
        if protocol != ColdL2Events.name:
            raise ContractError(f"no timing protocol {protocol!r}; known: {ColdL2Events.name}")
        self._device = torch.device("cuda", torch.cuda.current_device())
        properties = torch.cuda.get_device_properties(self._device)
        self._timing = ColdL2Events(properties.L2_cache_size, self._device)
        self._telemetry = Telemetry(f"GPU-{properties.uuid}")
        self._kept_bytes = int(properties.total_memory * _KEPT_SHARE_OF_MEMORY)
        self._prepared: OrderedDict[Problem, tuple[Operands, Reference]] = OrderedDict()

    def __call__(self, job: MeasureJob) -> Reading | Last[Reading]:
        """Measure one artifact. A failure is a reading too; after one that leaves the GPU unusable the process ends."""
        try:
            operands, reference = self._operands(job.task.problem)
            kernel = registry.space(job.task.space).load(job.artifact, job.task)
            reading = self._measure(kernel, operands, reference)
            kernel.close()
        except Exception as error:  # whatever it is, it is this config's failure
            return self._failed(error)
        return reading

    def _measure(self, kernel: Launchable, operands: Operands, reference: Reference) -> Reading:
        def launch() -> None:
            kernel(operands.a, operands.b, operands.out)

        before = self._telemetry.read()
        operands.out.fill_(float("nan"))
        self._timing.time_once(launch)  # the first launch also loads the kernel
        comparison = reference.compare(operands.out)
        if comparison.reason:
            return Reading(Status.WRONG_RESULT, comparison.reason, error_norm=comparison.error_norm, before=before)
        samples_ns = self._timing.time(launch, self._timing.time_once(launch))
        after = self._telemetry.read()
        return Reading(Status.OK, "", samples_ns, comparison.error_norm, before, after)

    def _failed(self, error: Exception) -> Reading | Last[Reading]:
        first_line = next(iter(str(error).splitlines()), "")
        reading = Reading(Status.RUN_FAILED, f"{type(error).__name__}: {first_line}"[:500])
        try:
            torch.cuda.synchronize()
        except RuntimeError:
            return Last(reading)  # a sticky error: every later call in this process would fail
        return reading

    def _operands(self, problem: Problem) -> tuple[Operands, Reference]:
        """The problem's tensors, kept for the next job while memory allows."""
        if problem not in self._prepared:
            operands = make_operands(problem, self._device)
            self._prepared[problem] = operands, Reference(problem, operands)
            while len(self._prepared) > 1 and self._nbytes() > self._kept_bytes:
                self._prepared.popitem(last=False)
        self._prepared.move_to_end(problem)
        return self._prepared[problem]

    def _nbytes(self) -> int:
        return sum(operands.nbytes + reference.nbytes for operands, reference in self._prepared.values())
